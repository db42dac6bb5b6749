"""Tests that a change touches, nearest first.

`python3 scripts/changed.py [--since REV]` prints one path a line for pytest. A file is changed if it differs from REV
(default: HEAD, so the work that is not committed yet). A test file is touched if it is changed itself, or imports a
changed module, directly or through others; its distance is the number of imports between. Names such as
"berth.x.y:Class" in strings count as imports: berth loads policies, engines and families by them. So do names of
engines with an address or file, such as "slurm:slurm.yaml".
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import defaultdict, deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/berth", "tests", "benchmarks", "scripts")
LAZY = re.compile(r"""["']((?:berth|tests)(?:\.\w+)+):\w+""")
ENGINE = re.compile(r"""["'](\w+):""")


def git(*words: str) -> list[str]:
    """The paths that a git command prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def module(path: str) -> str:
    """The dotted name of a Python file."""
    dotted = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def imported(path: str, text: str, known: set[str]) -> set[str]:
    """The modules among `known` that a file imports."""
    names = {*LAZY.findall(text), *(f"berth.live.engines.{kind}.engine" for kind in ENGINE.findall(text))}
    home = module(path).split(".") + (["__init__"] if path.endswith("__init__.py") else [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*home[: -node.level], node.module or ""]).strip(".") if node.level else node.module or ""
            names.update(f"{base}.{alias.name}" for alias in node.names)
            names.add(base)
    return names & known


def importers(files: dict[str, str]) -> dict[str, set[str]]:
    """For each file, the files that import it; `files` are the modules by path. A conftest reaches its whole folder."""
    paths = {name: path for path, name in files.items()}
    known = set(paths)
    back: dict[str, set[str]] = defaultdict(set)
    for path in files:
        for name in imported(path, (ROOT / path).read_text(encoding="utf-8"), known):
            back[paths[name]].add(path)
        if path.endswith("conftest.py"):
            folder = path.removesuffix("conftest.py")
            back[path].update(other for other in files if other.startswith(folder) and other != path)
    return back


def touched(changed: list[str]) -> list[str]:
    """Files for pytest, nearest first: changed sources and pages for their examples, and the tests of what changed."""
    files = {path: module(path) for path in git("ls-files", "-co", "--exclude-standard", *FOLDERS) if _source(path)}
    back = importers(files)
    distance = {path: 0 for path in changed if path in files}
    queue = deque(distance)
    while queue:
        near = queue.popleft()
        for path in sorted(back[near] - distance.keys()):
            distance[path] = distance[near] + 1
            queue.append(path)
    tests = sorted((path for path in distance if Path(path).name.startswith("test_")), key=lambda path: distance[path])
    examples = [path for path in changed if path.startswith(("src/berth/", "docs/", "README")) and _examples(path)]
    return [*examples, *tests]


def _source(path: str) -> bool:
    return path.endswith(".py") and (ROOT / path).is_file()


def _examples(path: str) -> bool:
    return path.endswith((".py", ".md")) and (ROOT / path).is_file() and ">>> " in (ROOT / path).read_text("utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the tests that a change touches, nearest first.")
    parser.add_argument("--since", default="HEAD", metavar="REV", help="compare with this revision [HEAD]")
    since = parser.parse_args().since
    new = git("ls-files", "--others", "--exclude-standard")
    print("\n".join(touched([*git("diff", "--name-only", since), *new])))


if __name__ == "__main__":
    main()
