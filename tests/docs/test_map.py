"""Files that the map of berth names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_named_are_there(page: str) -> None:
    named = set(re.findall(r"`([a-z_/.-]+(?:/|\.py|\.md))`", (ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 10
    everything = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*")]
    for name in named:
        assert (ROOT / name).exists() or any(f"{path}/".endswith(f"/{name.rstrip('/')}/") for path in everything), name
