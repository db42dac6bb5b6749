#!/usr/bin/env python3
"""Set up and run berth from a fresh clone, with nothing but Python.

python3 dev.py demo        sets up .venv, installs berth there, runs `berth demo`
python3 dev.py test        sets up .venv, then lint, types, import rules, prose, docs and tests: what must hold before
                           a change is accepted
python3 dev.py test --slow the same with the slow tests too, and with other random examples each time: before a release
python3 dev.py test --changed [--since REV]
                           lint, types, import rules, prose and, for two minutes, the tests that a change touches,
                           nearest first; the change is all work since REV (default: since the last commit)
python3 dev.py setup       sets up .venv with all that the tests need
python3 dev.py docs        builds the documentation into site/
python3 dev.py run ARGS    runs `berth ARGS` in that environment
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # the documentation tool's advertisement
# Tests start hundreds of processes: without compiled files each of them would compile every module that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
SPELLED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "src", "benchmarks", "scripts", "examples", "dev.py")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


def say(text: str) -> None:
    print(f"dev: {text}", flush=True)


def run(*command: str | Path) -> None:
    """Run a command in the project; a failure ends this program with the command's exit status."""
    run_together(command)


def run_together(first: Sequence[str | Path], *others: Sequence[str | Path]) -> None:
    """Run commands side by side; what the others print is shown when the first is finished."""
    pipe = subprocess.PIPE
    beside = [subprocess.Popen(part, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True) for part in others]
    ended = {subprocess.run(first, cwd=ROOT).returncode: first}
    for command, process in zip(others, beside, strict=True):
        print(f"{Path(command[0]).name}:", process.communicate()[0].strip() or "fine")
        ended.setdefault(process.returncode, command)
    for status, command in ended.items():
        if status:
            say(f"failed: {' '.join(str(part) for part in command)}")
            sys.exit(status)


@contextmanager
def beside(*command: str | Path) -> Iterator[None]:
    """Run a command, without its output, beside others; end it if one of them fails."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        process.wait()
    finally:
        process.kill()


def install(extras: str) -> None:
    """Make .venv and install berth with these extras, unless that is done for this pyproject.toml already."""
    want = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + extras.encode()).hexdigest()
    stamp = HOME / f"berth-{extras or 'plain'}.stamp"
    if stamp.exists() and stamp.read_text() == want and PYTHON.exists():
        return
    if not PYTHON.exists():
        say(f"making {HOME.name} with Python {sys.version.split()[0]}")
        try:
            venv.create(HOME, with_pip=True)
        except subprocess.CalledProcessError:
            sys.exit("dev: this Python cannot make virtual environments; install its venv module (python3-venv)")
    say("installing berth and what it needs (a minute or two)")
    target = f".[{extras}]" if extras else "."
    quiet = "--quiet", "--disable-pip-version-check"
    run(PYTHON, "-m", "pip", "install", *quiet, "--no-compile", "--editable", target)  # Python compiles on import
    stamp.write_text(want)


def setup() -> None:
    """Install all that the tests need."""
    install("test,docs,gym,ray,serve")


def check_rules() -> None:
    """Check what takes seconds."""
    for title, command in (
        ("lint", [BIN / "ruff", "check", "."]),
        ("format", [BIN / "ruff", "format", "--check", "."]),
        ("import rules", [BIN / "lint-imports"]),
        ("spelling", [BIN / "codespell", *SPELLED]),
        ("phrases", [PYTHON, ROOT / "scripts" / "prose.py"]),
        ("links", [PYTHON, ROOT / "scripts" / "links.py"]),
    ):
        say(title)
        run(*command)


def test(arguments: list[str]) -> None:
    """Everything that must hold before a change is accepted."""
    setup()
    slow, changed = "--slow" in arguments, "--changed" in arguments
    rest = [argument for argument in arguments if argument not in ("--slow", "--changed")]
    if changed:
        os.environ.setdefault("BERTH_TEST_BUDGET", "120")
        finder = subprocess.run([PYTHON, ROOT / "scripts" / "changed.py", *rest], stdout=subprocess.PIPE, text=True)
        if finder.returncode:
            sys.exit(finder.returncode)
        rest = finder.stdout.split()
    marked, examples = ("not gpu", "explore") if slow else ("not slow and not gpu", "gate")
    tier = ["-m", marked, f"--hypothesis-profile={examples}"]
    processes = str((os.cpu_count() or 2) + 2)  # two run tests on clusters, which mostly wait
    together = ["-n", processes, "--no-loadscope-reorder"]
    pytest: list[str | Path] = [PYTHON, "-m", "pytest", *together, *tier, *rest]
    # what tests import is compiled to bytecode once, not by each of their processes
    with nullcontext() if changed else beside(*pytest, "-n0", "--collect-only"):
        check_rules()
    types = [BIN / "mypy"]
    docs: list[str | Path] = [BIN / "mkdocs", "build", "--strict", "--quiet"]
    if not changed:
        say("tests, with types and docs beside them")
        run_together(pytest, types, docs)
    elif rest:
        say("tests, with types beside them")
        run_together(pytest, types)
    else:
        say("types")
        run(*types)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 -- whoever runs this with an old Python should be told
        sys.exit(f"dev: berth needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    command, *rest = sys.argv[1:] or ["help"]
    if command == "demo":
        install("")
        run(PYTHON, "-m", "berth", "demo", *rest)
    elif command == "test":
        test(rest)
    elif command == "setup":
        setup()
    elif command == "docs":
        install("test,docs,gym")
        run(BIN / "mkdocs", "build", "--strict")
    elif command == "run":
        install("")
        run(PYTHON, "-m", "berth", *rest)
    else:
        print(__doc__)
        sys.exit(0 if command in ("help", "-h", "--help") else 2)


if __name__ == "__main__":
    main()
