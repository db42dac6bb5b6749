"""What documents and messages tell readers to install: berth's own distribution, on lines that can be pasted."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.about import VERSION
from berth.errors import MissingExtra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME, EXTRAS = PROJECT["name"], set(PROJECT["optional-dependencies"])
OTHERS = {"build", "twine", "jupyter"}
"""Projects of others that readers are told to install."""
PLACES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Containerfile",
    "dev.py",
    ".github",
    "docs",
    "examples",
    "src",
)
FORMATS = {".md", ".py", ".toml", ".ipynb", ".yaml", ".yml", ""}
INSTALL = re.compile(r"\b(?:pip3?|pipx|uv pip|uv tool|uv) (?:install|add|wheel)\b(?P<rest>[^`\n]*)")
VALUED = {"--resolution", "-r", "--extra", "--wheel-dir", "--index-url"}


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of every file that speaks to users."""
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix in FORMATS and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def what_is_wrong(rest: str) -> list[str]:
    """Arguments of an install command that are no option, no path, and no project that readers should install."""
    wrong, value = [], False
    for word in shlex.split(rest):
        name, _, more = word.partition("[")
        extras = {extra for extra in more.rstrip("]").split(",") if extra}
        path = "/" in name or name in (".", "..") or name.endswith(".whl")
        known = path or name in OTHERS or name == NAME
        if not (value or word.startswith("-")) and (not known or ((path or name == NAME) and not extras <= EXTRAS)):
            wrong.append(word)
        value = word in VALUED
    return wrong


@pytest.mark.parametrize(
    ("rest", "wrong"),
    [
        (" '.[serve]'", []),
        (" PATH/TO/CLONE/OF/BERTH", []),
        (f" '{NAME}[gym,ray]'", []),
        (" --resolution lowest-direct -r pyproject.toml --extra serve", []),
        (" berth jupyter", ["berth"]),
        (" 'berth[kubernetes]'", ["berth[kubernetes]"]),
        (f" '{NAME}[gmy]'", [f"{NAME}[gmy]"]),
        (" '.[serve]'       install the command", ["install", "the", "command"]),
        (" .      or the wheel: pip install berth-0.1.0-py3-none-any.whl", ["or", "the", "wheel:", "pip", "install"]),
    ],
)
def test_the_rule(rest: str, wrong: list[str]) -> None:
    assert what_is_wrong(rest) == wrong


def test_install_lines_name_berth_and_can_be_pasted() -> None:
    seen, wrong = 0, []
    for path, text in texts():
        if path in ("Containerfile", "dev.py"):  # commands of a shell and of Python, which run in tests and releases
            continue
        lines = json.dumps(json.loads(text), indent=0).replace('\\"', '"') if path.endswith(".ipynb") else text
        for found in INSTALL.finditer(lines):
            rest = found["rest"].partition("\\n")[0].replace("{extra}", "gym").rstrip('",.)').strip()
            if rest:
                seen += 1
                wrong += [f"{path}: pip install {rest}: {word}" for word in what_is_wrong(rest)]
    assert seen > 15
    assert not wrong


def test_nothing_depends_on_the_project_of_others_that_has_our_name() -> None:
    extras = re.compile(rf"(?<![\w/.-])berth\[(?:{'|'.join(EXTRAS)})\b")
    for path, text in texts():
        assert not extras.search(text), path
        assert not re.search(r"\bberth-\d+\.\d+\S*\.(?:whl|tar\.gz)|\bberth-\*\.whl", text), path
        if Path(path).name == "pyproject.toml":
            about = tomllib.loads(text)["project"]
            asked = [*about["dependencies"], *(one for more in about["optional-dependencies"].values() for one in more)]
            assert not [one for one in asked if re.split(r"[\[<>=!~; ]", one)[0] == "berth"], path


def test_wheels_have_the_name_and_version_of_this_one() -> None:
    named = {wheel for _, text in texts() for wheel in re.findall(r"\bberth_scheduler-[\w.*]+-\S+?\.whl", text)}
    assert f"berth_scheduler-{VERSION}-py3-none-any.whl" in named
    assert named <= {f"berth_scheduler-{version}-py3-none-any.whl" for version in (VERSION, "VERSION")}
    assert f"{NAME.replace('-', '_')}-*.whl" in (ROOT / "Containerfile").read_text(encoding="utf-8")


def test_messages_name_the_distribution() -> None:
    for extra in EXTRAS - {"dev", "docs", "bench"}:
        assert str(MissingExtra("this", extra)).endswith(f"pip install '{NAME}[{extra}]'")
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == EXTRAS - {"dev", "docs", "bench", "test"}


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/start-lab.md", "docs/start-scheduler.md"])
def test_lines_of_install_sections_hold_commands_alone(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    section = re.search(r"^#+ Install\n(.*?)(?=^## (?!Extras|From)|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    commands = [
        line for block in re.findall(r"```text\n(.*?)```", section[1], re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) >= 3
    for line in commands:
        assert "  " not in line, line
        assert "#" not in line, line
        assert shlex.split(line)[0] in ("python3", ".", "pip", "berth"), line
