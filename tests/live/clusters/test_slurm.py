"""A local Slurm cluster that is not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.live.clusters import ClusterError, slurm
from berth.live.clusters.slurm import LocalSlurm
from berth.live.clusters.supervisor import down, up


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ClusterError, match="other files"):
        up("slurm", tmp_path, {"nodes": 1})
    assert not down(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "PROGRAMS", ("slurmctld", "no-such-slurmd"))
    with pytest.raises(ClusterError, match=r"no-such-slurmd not found: install Slurm and munge \(Debian"):
        LocalSlurm(tmp_path, 1).start()


def test_numbers_of_nodes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="1 to 512 nodes"):
        LocalSlurm(tmp_path, 0)
