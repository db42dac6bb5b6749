"""The programme of one slot on a GPU, with a certified gap, beside other solvers: `python -m benchmarks.gpu_solvers`.

First the arrival-aware slots of a scenario with all utilities, from slot to slot with a warm start, until value and
bound are within .1 %: GPU and CPU. Then one slot with linear utilities, which is a linear programme, from a cold
start, to the same tolerance: berth on the GPU, MPAX on the same GPU, PDLP (OR-tools) and HiGHS on the CPU. Each peer's
solution is made feasible and its value compared with berth's certified bound. A peer that is not installed is left
out; PDLP and HiGHS run in processes of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import queue
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import sparse

from benchmarks.gpu import world_of
from berth.cuda import CudaDevice, open_device
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.programme import CudaProgramme
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.families.allocation.programme import Programme
from berth.families.allocation.utility import Utilities

GAP = 1e-3
PATIENCE = 60.0  # seconds that a peer may take
GOALS = {10_000: 2.0, 100_000: 20.0}  # milliseconds
Floats = NDArray[np.float64]


class LinearProgramme(NamedTuple):
    """Minimise cost·x over lower rows only: rows·x ≤ limit, 0 ≤ x ≤ upper. x is the decision, then a cost by job."""

    cost: Floats
    rows: Any
    limit: Floats
    upper: Floats


def aware_table(device: CudaDevice, sizes: list[int], slots: int) -> Table:
    table = Table(title=f"Arrival-aware slots to a certified gap of {GAP:.1%}, warm start, on {device.name}")
    for name in (
        "servers",
        "precision",
        "ms a slot",
        "goal",
        "reached",
        "iterations",
        "largest gap",
        "CPU ms",
        "× CPU",
    ):
        table.add_column(name, justify="right")
    for servers in sizes:
        world = world_of(servers, slots + 3)
        cpu = aware_cpu(world.problem, world.arrivals[:5]) if servers <= 10_000 else float("nan")
        for dtype in (np.float64, np.float32):
            programme = CudaProgramme(Batch(device, [world.problem], dtype, programme=True))
            times, gaps, counts = [], [], []
            for arrivals in world.arrivals:
                began = time.perf_counter()
                solved = programme.solve(arrivals, GAP, max_iterations=2000)
                times.append(time.perf_counter() - began)
                gaps.append(float(solved.gap[0]))
                counts.append(solved.iterations)
            spent = float(np.median(times[3:])) * 1e3
            goal = GOALS.get(servers)
            table.add_row(
                f"{servers:,}",
                np.dtype(dtype).name,
                f"{spent:.2f}",
                "" if goal is None else f"{goal:.0f}",
                "" if goal is None else "yes" if spent <= goal and max(gaps[3:]) <= GAP else "no",
                f"{np.median(counts[3:]):.0f}",
                f"{max(gaps[3:]):.1e}",
                f"{cpu:,.1f}",
                f"{cpu / spent:,.0f}",
            )
    return table


def aware_cpu(problem: AllocationProblem, arrivals: Floats) -> float:
    """Median milliseconds of a slot on one core, from the third slot on."""
    programme, times = Programme(problem), []
    for row in arrivals:
        began = time.perf_counter()
        programme.solve(row, GAP, max_iterations=2000)
        times.append(time.perf_counter() - began)
    return float(np.median(times[2:])) * 1e3


def linear_problem(servers: int) -> tuple[AllocationProblem, Floats]:
    """A problem with linear utilities, and the arrivals of a slot."""
    world = world_of(servers, 1)
    problem = world.problem
    choice = np.zeros(problem.instance.capacity.shape, dtype=np.int64)
    return problem.replace(utilities=Utilities(("linear",), choice, problem.utilities.alpha)), world.arrivals[0]


def linear_programme(problem: AllocationProblem, arrivals: Floats) -> LinearProgramme:
    """The slot as a linear programme."""
    graph = problem.instance
    channels, resources = problem.cap.shape
    present = arrivals[problem.channel_job] > 0
    e, k = np.nonzero(np.ones_like(problem.cap, dtype=bool))
    y = e * resources + k
    count, jobs = channels * resources, problem.jobs
    capacity_row = graph.channel_server[e] * resources + k
    charge_row = graph.capacity.size + problem.channel_job[e] * resources + k
    job, kind = np.divmod(np.arange(jobs * resources), resources)
    rows = sparse.csr_matrix(
        (
            np.concatenate([np.ones(count), problem.overhead[problem.channel_job[e], k], -np.ones(jobs * resources)]),
            (
                np.concatenate([capacity_row, charge_row, graph.capacity.size + job * resources + kind]),
                np.concatenate([y, y, count + job]),
            ),
        ),
        shape=(graph.capacity.size + jobs * resources, count + jobs),
    )
    alpha = problem.utilities.alpha[graph.channel_server]
    most = np.bincount(problem.channel_job, weights=problem.cap.sum(axis=1), minlength=jobs) * problem.overhead.max()
    return LinearProgramme(
        np.concatenate([-(alpha * present[:, None]).ravel(), arrivals]),
        rows,
        np.concatenate([graph.capacity.ravel(), np.zeros(jobs * resources)]),
        np.concatenate([(problem.cap * present[:, None]).ravel(), most + 1.0]),
    )


def with_mpax(lp: LinearProgramme) -> tuple[float, Floats]:
    """Seconds of MPAX's second run (the first compiles), and its solution."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from jax.experimental.sparse import BCOO
    from mpax import create_lp, r2HPDHG

    none = BCOO.from_scipy_sparse(sparse.csr_matrix((0, lp.rows.shape[1])))
    problem = create_lp(
        jnp.array(lp.cost),
        none,
        jnp.zeros(0),
        BCOO.from_scipy_sparse(-lp.rows),
        jnp.array(-lp.limit),
        jnp.zeros(len(lp.cost)),
        jnp.array(lp.upper),
    )
    optimize = jax.jit(r2HPDHG(eps_abs=GAP, eps_rel=GAP).optimize)
    for _ in range(2):
        began = time.perf_counter()
        solution = np.asarray(optimize(problem).primal_solution)
        spent = time.perf_counter() - began
    return spent, solution


def with_pdlp(lp: LinearProgramme) -> tuple[float, Floats]:
    from ortools.pdlp import solvers_pb2
    from ortools.pdlp.python import pdlp

    programme = pdlp.QuadraticProgram()
    programme.objective_vector = lp.cost
    programme.constraint_matrix = sparse.csc_matrix(lp.rows)
    programme.constraint_lower_bounds = np.full(len(lp.limit), -np.inf)
    programme.constraint_upper_bounds = lp.limit
    programme.variable_lower_bounds = np.zeros(len(lp.cost))
    programme.variable_upper_bounds = lp.upper
    settings = solvers_pb2.PrimalDualHybridGradientParams()
    criteria = settings.termination_criteria
    criteria.simple_optimality_criteria.eps_optimal_absolute = GAP
    criteria.simple_optimality_criteria.eps_optimal_relative = GAP
    criteria.time_sec_limit = PATIENCE
    settings.num_threads = multiprocessing.cpu_count()
    began = time.perf_counter()
    result = pdlp.primal_dual_hybrid_gradient(programme, settings)
    return time.perf_counter() - began, np.array(result.primal_solution)


def with_highs(lp: LinearProgramme) -> tuple[float, Floats]:
    from scipy import optimize

    began = time.perf_counter()
    bounds = np.column_stack([np.zeros(len(lp.cost)), lp.upper])
    solve: Any = optimize.linprog  # its types know no sparse matrices
    found = solve(lp.cost, lp.rows, lp.limit, bounds=bounds, method="highs", options={"time_limit": PATIENCE})
    return time.perf_counter() - began, np.zeros(0) if found.x is None else found.x


def _report(work: Callable[[LinearProgramme], tuple[float, Floats]], lp: LinearProgramme, answers: Any) -> None:
    try:
        answers.put(work(lp))
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")


def apart(work: Callable[[LinearProgramme], tuple[float, Floats]], lp: LinearProgramme) -> tuple[float, Floats] | str:
    """The answer of a solver in a process of its own, or why there is none."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_report, args=(work, lp, answers), daemon=True)
    process.start()
    try:
        found: tuple[float, Floats] | str = answers.get(timeout=2.5 * PATIENCE)
    except queue.Empty:
        found = f"not finished after {2.5 * PATIENCE:.0f} s"
    process.terminate()
    process.join()
    return found


PEERS: dict[str, tuple[str, Callable[[LinearProgramme], tuple[float, Floats]]]] = {
    "MPAX, GPU": ("mpax", with_mpax),
    "PDLP, CPU": ("ortools", with_pdlp),
    "HiGHS, CPU": ("scipy", with_highs),
}


def linear_table(device: CudaDevice, servers: int) -> Table:
    problem, arrivals = linear_problem(servers)
    lp = linear_programme(problem, arrivals)
    title = (
        f"One slot with linear utilities, {servers:,} servers, {len(lp.cost):,} variables, gap {GAP:.1%}, cold start"
    )
    table = Table(title=title)
    for name in ("solver", "seconds", "× berth", "value", "of the bound", "note"):
        table.add_column(name, justify="left" if name in ("solver", "note") else "right")
    programme = CudaProgramme(Batch(device, [problem], programme=True))
    programme.solve(np.ones(problem.jobs), 0.5, max_iterations=16)  # compiles
    programme = CudaProgramme(Batch(device, [problem], programme=True))
    began = time.perf_counter()
    solved = programme.solve(arrivals, GAP)
    own = time.perf_counter() - began
    bound = float(solved.bound[0])
    table.add_row(
        "berth, GPU",
        f"{own:.4f}",
        "1",
        f"{solved.value[0]:,.1f}",
        f"{solved.value[0] / bound:.5f}",
        f"{solved.iterations} iterations, certified gap {solved.gap[0]:.1e}",
    )
    slot = AllocationSlot(0, problem.instance.capacity, arrivals)
    for name, (package, work) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            table.add_row(name, "", "", "", "", "not installed")
            continue
        found = apart(work, lp)
        if isinstance(found, str) or not len(found[1]):
            table.add_row(name, "", "", "", "", (found if isinstance(found, str) else "no solution in time")[:90])
            continue
        spent, solution = found
        decision = problem.repaired(slot, solution[: problem.cap.size].reshape(problem.cap.shape))
        gain, overhead = problem.reward(arrivals, decision)
        value = gain - overhead
        table.add_row(
            name, f"{spent:.3f}", f"{spent / own:,.0f}", f"{value:,.1f}", f"{value / bound:.5f}", "made feasible"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--no-peers", action="store_true", help="berth alone")
    arguments = parser.parse_args()
    device = open_device("cuda")
    console = Console(width=150)
    console.print(aware_table(device, [1_024] if arguments.quick else [1_024, 10_000, 100_000], 20))
    if not arguments.no_peers:
        for servers in [1_024] if arguments.quick else [1_024, 10_000]:
            console.print(linear_table(device, servers))


if __name__ == "__main__":
    main()
