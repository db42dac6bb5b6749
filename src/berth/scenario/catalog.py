"""Names and titles of the shipped scenarios. Imports little: shell completion lists them on every Tab."""

from __future__ import annotations

from pathlib import Path

__all__ = ["named_file", "scenario_names"]

FOLDER = Path(__file__).parent.parent / "data" / "scenarios"


def scenario_names() -> dict[str, str]:
    """Every named scenario and its title.

    >>> scenario_names()["small"]
    'Small: 4 job types, 12 servers, 200 slots'
    """
    return {path.stem: _title(path) for path in sorted(FOLDER.glob("*.yaml"), key=lambda path: path.stem)}


def named_file(name: str) -> Path | None:
    """The file of a named scenario, None if the name is unknown."""
    # looked up, not joined to the folder: a text with a separator is a path, never a name
    return next((path for path in FOLDER.glob("*.yaml") if path.stem == name), None)


def _title(path: Path) -> str:
    """Read the title without a YAML parser, whose import would dominate: shipped files have it on one plain line
    `title: …`, which a test checks."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("title:"):
                return line.removeprefix("title:").strip().strip("'\"")
    return ""
