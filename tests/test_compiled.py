"""Kernels kept on disk."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numba
import pytest

from berth.kernels.compiled import compiled


def _twice(number: float) -> float:
    return 2 * number


def test_an_index_of_other_sources_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # numba compares its own version before it unpickles the rest, and only then the stamp of the source
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    kernel: Any = compiled(_twice)
    index = Path(kernel._cache._cache_file._index_path)
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_bytes(pickle.dumps(numba.__version__) + b"cberth.kernels\nClassThatIsGone\n.")
    assert tmp_path in index.parents
    assert kernel(2.0) == 4.0
    again: Any = compiled(_twice)
    assert again(3.0) == 6.0
    assert sum(again.stats.cache_hits.values()) == 1
