"""What a release holds: the wheel, the source distribution, and files that name the version."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

from berth.about import VERSION

ROOT = Path(__file__).parent.parent
BUILD = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1]); b.build_sdist(sys.argv[1])"
LARGEST_WHEEL = 3_000_000


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
    package = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src" / "berth").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    info = f"berth_scheduler-{VERSION}.dist-info"
    assert {name for name in names if not name.startswith(f"{info}/")} == package
    assert f"{info}/licenses/LICENSE" in names
    for name in ("py.typed", "data/scenarios/demo.yaml", "live/service/dashboard/index.html"):
        assert f"berth/{name}" in names
    assert path.stat().st_size < LARGEST_WHEEL


def test_the_wheel_describes_itself(dist: Path) -> None:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        metadata = Parser().parsestr(wheel.read(f"berth_scheduler-{VERSION}.dist-info/METADATA").decode())
        points = wheel.read(f"berth_scheduler-{VERSION}.dist-info/entry_points.txt").decode()
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "lab" in metadata["Summary"]
    assert "scheduler" in metadata["Summary"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "berth = berth.cli:main" in points


def test_the_source_distribution_can_be_tested(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "dev.py", "tests/conftest.py", "scripts/phrases.txt", "docs/index.md", "CITATION.cff"}
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "site/"))]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == VERSION
    assert citation["license"] == project["license"]


def test_the_container_copies_what_the_build_needs() -> None:
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", container, re.MULTILINE) for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
