"""Run every command of the start pages and of the pages on real clusters, in the order in which a reader types them.

The commands of the start pages run in the test process; all others, and these too in the slow tests, as programs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from berth.live.clusters import end, marked
from berth.live.clusters.kubernetes import missing_programs as kubernetes_missing
from berth.live.clusters.kubernetes import programs_folder
from berth.live.clusters.slurm import missing_programs
from berth.live.clusters.supervisor import down
from tests.docs.shell import berth_in_process

DOCS = Path(__file__).parents[2] / "docs"
SERVICE = DOCS.parent / "src" / "berth" / "live" / "service"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


QUICKER = {"--faster 60": "--faster 300"}
IN_PROCESS = {**QUICKER, "--seeds 4": "--seeds 4 --workers 1"}
"""What is changed on the pages: how fast a simulated cluster is, and how many processes compare policies."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path for temporary files and the home of a reader."""
    folder = Path(tempfile.mkdtemp(prefix="bd-"))
    yield folder
    for kind in ("slurm", "ray", "kubernetes"):
        where = folder / f"berth-{os.getuid()}" / kind
        down(where)
        end(marked(where))
    shutil.rmtree(folder, ignore_errors=True)


def typed(
    page: str,
    place: Path,
    port: int,
    programs: Path = Path(sys.executable).parent,
    changes: Mapping[str, str] = QUICKER,
) -> str:
    """What a shell prints when all commands of a page are typed one after another; it stops at the first that fails."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for there, instead in changes.items():
        text = text.replace(there, instead)
    blocks = BLOCK.findall(text)
    assert blocks
    cleanup = "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n"
    script = place / "page.sh"
    script.write_text("set -eu -o pipefail\nset -m\n" + cleanup + "\n".join(blocks), encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BERTH", "RAY"))},
        "PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin",
        "HOME": str(place),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),  # kernels compiled before
        "TMPDIR": str(place),
        "XDG_STATE_HOME": str(place / "state"),
        "BERTH_URL": f"http://127.0.0.1:{port}",
        "BERTH_CONFIG": str(place / "berth.yaml"),
        "BERTH_KUBERNETES": str(programs_folder()),
    }
    (place / "berth.yaml").write_text(f"port: {port}\n")
    done = subprocess.run(["bash", "-x", str(script)], cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(params=["in process", pytest.param("programs", marks=pytest.mark.slow)])
def start_page(
    request: pytest.FixtureRequest, place: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """What a page without a cluster prints."""
    if request.param == "programs":
        yield lambda page: typed(page, place, free_port)
        return
    monkeypatch.chdir(place)
    monkeypatch.setenv("BERTH_URL", f"http://127.0.0.1:{free_port}")
    with berth_in_process(place, free_port) as programs:
        yield lambda page: typed(page, place, free_port, programs, IN_PROCESS)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_programs()), reason="Slurm is not installed (python3 scripts/slurm.py install)")
def test_slurm(place: Path, free_port: int) -> None:
    said = typed("slurm.md", place, free_port)
    assert "train-6 finished" in said
    assert "script-1 finished" in said
    assert re.search(r"^train +n\d.* class=\w+", said, re.MULTILINE)  # a learned speed
    assert "it would not fit even if nothing ran" in said
    assert re.search(r"^slurm-\d+-\d+ +train +finished", said, re.MULTILINE)
    assert "slurm is down" in said


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray(place: Path, free_port: int) -> None:
    said = typed("ray.md", place, free_port)
    assert "train-6 finished" in said
    assert re.search(r"^train +n\d.* class=\w+", said, re.MULTILINE)
    assert "ray is down" in said


@pytest.mark.slow
@pytest.mark.skipif(bool(kubernetes_missing()), reason="Kubernetes is not installed (scripts/kubernetes.py install)")
def test_kubernetes(place: Path, free_port: int) -> None:
    said = typed("kubernetes.md", place, free_port)
    assert "train-6 finished" in said
    assert re.search(r"^train +n\d.* class=\w+", said, re.MULTILINE)
    assert re.search(r"^task-1: task 1 of 2 on n\d$", said, re.MULTILINE)
    assert re.search(r"^kubernetes-default-simulate-\w+ +simulate +finished", said, re.MULTILINE)
    assert "kubernetes is down" in said


def test_kubernetes_plan(start_page: Callable[[str], str]) -> None:
    said = start_page("kubernetes-plan.md")
    page = (DOCS / "kubernetes-plan.md").read_text(encoding="utf-8")
    answer = re.search(r"^```text\n(Job ml/train would wait\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert answer is not None
    assert answer[1] in said
    assert "Job ml/train would start now\n  2 pods on gpu-2\n" in said
    assert '"starts": true' in said


def test_start_lab(place: Path, start_page: Callable[[str], str]) -> None:
    said = start_page("start-lab.md")
    page = (DOCS / "start-lab.md").read_text(encoding="utf-8")
    numbers = re.findall(
        r"^(?:ogasched|fairness|drf|fcfs|easy|sjf) .+$", page.partition("## In Python")[0], re.MULTILINE
    )
    assert len(numbers) == 8
    assert all(line in said for line in numbers)
    assert (place / "results" / "report.html").is_file()


def test_start_scheduler(start_page: Callable[[str], str]) -> None:
    said = start_page("start-scheduler.md")
    assert "train-6 finished" in said
    assert re.search(r"^train +gpu-\d.* class=gpu", said, re.MULTILINE)
    assert re.search(r"^  turnaround: .*, by job -", said, re.MULTILINE)  # the other policy would have gained
    assert "policy    completion" in said


def test_every_metric_is_described() -> None:
    made = set(re.findall(r'"(berth_\w+)"', (SERVICE / "metrics.py").read_text(encoding="utf-8")))
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(berth_\w+)`", page, re.MULTILINE)) == made
