"""Hand-made samples of every format, plain and gzip."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(params=["plain", "gzip"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """From `format/file` to a copy of that file with all that lies beside it, plain or gzip."""

    def copied(name: str) -> Path:
        folder, file = name.rsplit("/", 1)
        if request.param == "plain":
            shutil.copytree(SAMPLES / folder, tmp_path / folder, dirs_exist_ok=True)
            return tmp_path / folder / file
        for item in (SAMPLES / folder).iterdir():
            if item.is_file():
                (tmp_path / folder).mkdir(parents=True, exist_ok=True)
                (tmp_path / folder / f"{item.name}.gz").write_bytes(gzip.compress(item.read_bytes()))
        return tmp_path / folder / f"{file}.gz"

    return copied


@pytest.fixture
def nameless(tmp_path: Path) -> Callable[[str], Path]:
    """The same, plain, with the line of names taken off every table: as most publishers give them."""

    def copied(name: str) -> Path:
        folder, file = name.rsplit("/", 1)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for item in (SAMPLES / folder).glob("*.csv"):
            (tmp_path / folder / item.name).write_text(item.read_text().partition("\n")[2])
        return tmp_path / folder / file

    return copied
