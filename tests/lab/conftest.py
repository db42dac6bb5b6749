"""What several test files of the lab share."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

UNDRAWN: dict[str, Any] = {"svg": "<svg><defs></defs></svg>", "png": b"PNG"}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made but not drawn, which takes most of a short run.

    For tests of what a directory keeps, which run several times; other tests look at the pictures.
    """

    def savefig(figure: Figure, file: Any, *, format: str, **_: Any) -> None:
        file.write(UNDRAWN[format])

    monkeypatch.setattr(Figure, "savefig", savefig)
