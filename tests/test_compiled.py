"""Kernels kept on disk."""

from __future__ import annotations

import multiprocessing
import pickle
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from berth.kernels import compiled as module
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


def test_kernels_are_kept_in_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    kernel: Any = compiled(_twice)
    assert kernel(2.0) == 4.0
    again: Any = compiled(_twice)  # as after another installation
    assert again(3.0) == 6.0
    assert sum(again.stats.cache_hits.values()) == 1
    (folder,) = (tmp_path / "berth" / "kernels").iterdir()
    assert {path.suffix for path in folder.iterdir()} == {".nbi", ".nbc", ".lock"}


def test_a_kernel_is_compiled_anew_only_if_what_it_may_call_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "outer": "from berth.kernels.middle import (\n    one,\n)\n",
        "middle": "from berth.kernels import unused, inmost\n",
        "inmost": "",
        "unused": "",
        "other": "from numpy import inmost\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "_FILES", {f"berth.kernels.{name}": tmp_path / name for name in files})

    def stamps() -> dict[str, str]:
        module._imports.cache_clear()
        module._stamp.cache_clear()
        return {name: module._stamp(name if name == "elsewhere" else f"berth.kernels.{name}") for name in asked}

    asked = ("outer", "middle", "other", "elsewhere")
    before = stamps()
    (tmp_path / "inmost").write_text("changed")
    after = stamps()
    assert [name for name in asked if before[name] != after[name]] == ["outer", "middle", "elsewhere"]
    monkeypatch.undo()
    module._imports.cache_clear()
    module._stamp.cache_clear()


def test_without_a_folder_numba_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "berth").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module._folder("a stamp") is None


def test_a_number_that_a_caller_writes_out_needs_no_kernel_of_its_own() -> None:
    inside: Any = compiled(_twice)

    def _both(number: int) -> Any:
        return inside(3) + inside(number)

    kernel: Any = compiled(_both)
    assert kernel(2) == 10
    assert len(inside.signatures) == 1


class Pair(NamedTuple):
    left: Any
    right: Any


def _first(pair: Pair, number: Any) -> Any:
    return pair.left[0] + pair.right[0] + number[0]


def test_read_only_arrays_need_no_kernel_of_their_own() -> None:
    writable = np.ones(1)
    frozen = np.ones(1)
    frozen.setflags(write=False)
    kernel: Any = compiled(_first)
    for left, right, number in product((frozen, writable), repeat=3):
        assert kernel(Pair(left, right), number) == 3.0
        assert kernel(Pair(left, right), number) == 3.0
    assert len(kernel.signatures) == 1


def _compiled_here(number: int, together: Barrier) -> int:
    """How often this process, one of several that begin together, compiled a kernel that none has saved."""
    kernel: Any = compiled(_twice)
    together.wait(60)
    assert kernel(float(number)) == 2.0 * number
    return sum(kernel.stats.cache_misses.values())


def test_processes_that_begin_together_compile_a_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, spawn.Pool(3) as pool:
        together = manager.Barrier(3)
        assert sorted(pool.starmap(_compiled_here, [(number, together) for number in range(3)])) == [0, 0, 1]
