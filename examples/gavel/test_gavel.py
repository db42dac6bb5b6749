"""What the package promises: exact allocations, rounds that follow them, and short jobs first under least service."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from berth_gavel.allocations import fifo, max_min, max_sum
from berth_gavel.jobs import GavelJob, read_jobs, read_speeds
from berth_gavel.table import POLICIES, compared, completions, main
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from berth import InvalidInput, check_policy
from berth.files.quantities import amounts
from berth.live.simulation import Dispatcher, Job, Queues, Role, Server, SimulatedCluster, Submitted, Truth, play

THERE = np.array([6, 4, 2])
SPEEDS = """model,batch_size,gpus,gpu_model,consolidated,steps_per_second
A3C,,1,v100,1,4
A3C,,1,p100,1,2
A3C,,1,k80,1,1
A3C,,1,k80,0,9
LM,5,2,v100,1,1
LM,5,2,p100,1,2
LM,5,2,k80,1,0
"""
STREAM = """job,arrival_s,type,gpus,steps,jct_fifo_perf_s,jct_max_min_fairness_perf_s
0,0.0,A3C,1,4000,1000.0,1000.0
1,10.0,LM (batch size 5),2,2000,1350.0,1350.0
2,20.0,A3C,1,40000,,11000.0
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, Path]:
    """A table of speeds and a stream of three jobs."""
    (tmp_path / "speeds.csv").write_text(SPEEDS, encoding="utf-8")
    (tmp_path / "stream.csv").write_text(STREAM, encoding="utf-8")
    return str(tmp_path / "speeds.csv"), tmp_path / "stream.csv"


PROGRAMS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3), min_size=n, max_size=n),
        st.lists(st.sampled_from([1, 2, 4]), min_size=n, max_size=n),
    )
)


def exact(speed: np.ndarray, gpus: np.ndarray, fair: bool) -> float:
    """The optimum by HiGHS."""
    jobs = len(gpus)
    whole, room = np.kron(np.eye(jobs), np.ones(3)), np.kron(gpus, np.eye(3))
    bound = np.concatenate([np.ones(jobs), THERE])
    if not fair:
        return -linprog(-speed.ravel(), np.vstack([whole, room]), bound).fun
    worth = speed * (gpus / (speed @ (THERE / THERE.sum())))[:, None]
    least = np.hstack([-np.kron(np.eye(jobs), np.ones(3)) * worth.ravel(), np.ones((jobs, 1))])
    matrix = np.vstack([np.hstack([np.vstack([whole, room]), np.zeros((jobs + 3, 1))]), least])
    return -linprog(np.append(np.zeros(speed.size), -1.0), matrix, np.append(bound, np.zeros(jobs))).fun


@given(PROGRAMS)
def test_allocations_are_feasible_and_optimal(program: tuple[list[list[float]], list[int]]) -> None:
    speed, gpus = np.array(program[0]), np.array(program[1])
    for fair, allocation in ((True, max_min(speed, gpus, THERE)), (False, max_sum(speed, gpus, THERE))):
        assert allocation.min() > -1e-6
        assert allocation.sum(axis=1).max() < 1 + 1e-6
        assert (gpus @ allocation <= THERE * (1 + 1e-6)).all()
        worth = (speed * allocation).sum(axis=1)
        if fair:
            worth *= gpus / (speed @ (THERE / THERE.sum()))
        value, best = worth.min() if fair else worth.sum(), exact(speed, gpus, fair)
        assert value == pytest.approx(best, rel=1e-5)


def test_equal_jobs_share_equally() -> None:
    shares = max_min(np.ones((6, 3)), np.full(6, 4), THERE)
    assert shares == pytest.approx(np.tile(shares[0], (6, 1)), abs=1e-6)


def test_fifo_lets_no_job_pass() -> None:
    speed = np.array([[1.0, 3, 2], [5, 4, 1], [0, 0, 1], [1, 1, 1]])
    assert fifo(speed, np.array([4, 6, 4, 1]), THERE).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_reads_speeds_and_streams(files: tuple[str, Path]) -> None:
    speeds, jobs = read_speeds(files[0]), read_jobs(files[1])
    assert speeds["A3C", 1].tolist() == [4.0, 2.0, 1.0]
    assert jobs[1] == GavelJob(1, 10.0, "LM/5", 2, 2000.0, {"fifo_perf": 1350.0, "max_min_fairness_perf": 1350.0})
    assert jobs[1].job(speeds).work == 2000.0
    with pytest.raises(InvalidInput, match="the file of measured speeds"):
        Dispatcher("berth_gavel:FIFO")


@pytest.mark.parametrize("policy", POLICIES.values())
def test_rounds_finish_every_job_once(files: tuple[str, Path], policy: str) -> None:
    jobs = read_jobs(files[1])
    ends = completions(jobs, f"berth_gavel:{policy}:speeds={files[0]}", files[0])
    assert set(ends) == {0, 1, 2}
    if policy == "FIFO":  # room for all: each runs on its fastest model from the round after its arrival
        assert [round(ends[number][0]) for number in (0, 1, 2)] == [1000, 1350, 10340]


def test_compares_with_the_stream(files: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(read_jobs(files[1]), "fifo_perf", files[0])
    assert (found.jobs, found.open_here, found.open_there) == (2, 0, 1)
    assert found.ours == pytest.approx(found.theirs)
    main([str(files[1]), "--speeds", files[0], "--policy", "fifo_perf"])
    assert capsys.readouterr().out.splitlines()[-1].split()[:5] == ["fifo_perf", "2", "0.33", "0.33", "1.000"]


def test_least_service_keeps_all_promises() -> None:
    assert all(result.passed for result in check_policy("berth_gavel:LeastAttained:slice=30"))


def test_short_jobs_pass_long_ones_under_least_service() -> None:
    def job(name: str, work: float, cpu: int = 1) -> Job:
        return Job(name, "t", (Role("main", 1, amounts({"cpu": cpu})),), work=work)

    cluster = SimulatedCluster([Server("n", amounts({"cpu": 2}))], Truth(restart=10.0))
    made = Dispatcher("berth_gavel:LeastAttained:slice=60", queues=Queues(patience=1e9))
    jobs = [(0.0, job("long", 1000.0, 2)), (100.0, job("short", 50.0)), (500.0, job("late", 50.0))]
    played = play(made, cluster, [Submitted(at, one) for at, one in jobs])
    assert not made.refusals
    ended = {name: record.ended for name, record in played.ended.items()}
    assert ended == {"short": 150.0, "late": 550.0, "long": 1000.0 + 2 * 50.0 + 2 * 10.0}
