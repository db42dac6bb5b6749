"""The installation of Kubernetes: where its source package comes from, and what it leaves alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts import kubernetes


def test_entries_for_source_packages_come_from_those_that_apt_uses(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/debian stable main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://one.example/debian stable main contrib # mirror\n"
        "deb-src http://one.example/debian stable main\n"
    )
    (parts / "two.sources").write_text(
        "Types: deb\n# a remark\nURIs: http://two.example/debian\nSuites: stable\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://three.example/debian\nSuites: stable\nComponents: main\n"
    )
    assert list(kubernetes.source_entries(tmp_path)) == [
        "Types: deb-src\nURIs: http://two.example/debian\nSuites: stable\nComponents: main\n",
        "Types: deb-src\nURIs: http://one.example/debian\nSuites: stable\n"
        "Components: main contrib\nSigned-By: /k.gpg\n",
    ]


def test_a_finished_build_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KUBERNETES", str(tmp_path))
    monkeypatch.setattr(kubernetes, "PACKAGES", {})
    for program in kubernetes.PROGRAMS:
        (tmp_path / program).touch(mode=0o755)
    kubernetes.install()
    assert len(list(tmp_path.iterdir())) == len(kubernetes.PROGRAMS)


def test_a_system_without_apt_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KUBERNETES", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no apt-get here; put kube-apiserver, .* into the PATH"):
        kubernetes.install()


def test_a_small_disk_is_noticed_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KUBERNETES", str(tmp_path / "programs"))
    monkeypatch.setattr(kubernetes, "PACKAGES", {})
    monkeypatch.setattr(kubernetes, "GO", tmp_path)
    (tmp_path / "go").touch()
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    monkeypatch.setattr(kubernetes, "DISK_GIB", 10**9)
    with pytest.raises(SystemExit, match="the build needs"):
        kubernetes.install()
    assert not (tmp_path / "programs").exists()
