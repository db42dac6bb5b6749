"""Every figure that OGASched is to reach, measured: `python -m benchmarks.figures`.

Prints one table: what, the goal, what was measured over how many seeds, reached or not. Nothing is tuned to the
goals: seeds are 0 … N−1, scenarios are those that come with berth. `--markdown FILE` writes the table as a
documentation page. Times a slot are in `python -m benchmarks.slot`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.table import Figure, arguments_of, at_least, command, markdown, row, run, said, show
from berth.families.allocation.kernels.lanes import build_lanes, limits, pack, unpack
from berth.families.allocation.kernels.slot import project
from berth.lab.run.results import Row
from tests.reference.allocation import project_exact


def projection(cases: int) -> Iterator[Figure]:
    """The compiled projection against the breakpoint solver; zero caps and capacities and ties among the cases."""
    rng = np.random.default_rng(0)
    worst, broken, done = 0.0, 0, 0
    while done < cases:
        servers, ports = 512, int(rng.integers(1, 9))
        cap = rng.choice([0.0, 0.5, 1.0, 2.0, 5.0], (servers, ports)) * rng.choice([1.0, rng.uniform(0.1, 3.0)])
        z = rng.normal(0.0, 10.0 ** rng.uniform(-2, 4), (servers, ports))
        z = np.where(rng.random(z.shape) < 0.3, np.round(z), z)  # ties
        capacity = rng.choice([0.0, 1.0, 3.0, 10.0], (servers, 1)) * rng.uniform(0.5, 1.5)
        lanes = build_lanes(
            np.arange(servers + 1) * ports,
            np.tile(np.arange(ports), servers),
            cap.reshape(-1, 1),
            capacity,
            np.zeros((servers, 1), dtype=np.int64),
            np.ones((servers, 1)),
            ports,
            (np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1)),
        )
        limit = limits(lanes, capacity)
        target, y = np.empty(lanes.cap.shape), np.empty(lanes.cap.shape)
        pack(lanes.element, z.reshape(-1, 1), target)
        project(lanes, limit, target, rng.uniform(0.0, 5.0, limit.shape), y)
        ours = np.zeros((servers * ports, 1))
        unpack(lanes.element, y, ours)
        ours = ours.reshape(servers, ports)
        for r in range(servers):
            exact = np.array(project_exact(list(z[r]), list(cap[r]), float(capacity[r, 0])))
            scale = float(capacity[r, 0]) + max(0.0, float(z[r].max())) + 1e-300
            worst = max(worst, float(np.abs(ours[r] - exact).max()) / scale)
        slack = 1e-9 * (1.0 + capacity[:, 0])
        broken += int((ours.sum(axis=1) > capacity[:, 0] + slack).sum() + ((ours < 0) | (ours > cap)).any(axis=1).sum())
        done += servers
    yield Figure(
        f"projection against an independent breakpoint solver, {done:,} cases",
        "",
        "error ≤ 1e-12 of c + max z; no violation",
        f"largest error {worst:.1e}; {broken} violations",
        "yes" if worst <= 1e-12 and broken == 0 else "no",
    )


def growth(found: Row) -> str:
    """How the regret to y* grows, where there is any."""
    exponent = found.regret_stationary_growth
    return "; no regret" if exponent is None else f"; regret grows as T^{exponent:.2f}"


def blind(seeds: int, overrides: dict[str, Any]) -> Iterator[Figure]:
    """Policies that reserve blindly, against y* and against FAIRNESS with the same and with more information."""
    policies = ["ogasched-rates", "ogasched", "ogasched:gradient=ewma", "ogasched:geometry=mirror", "ogasched:step=25"]
    policies.append("fairness")
    for scenario, title, goal in (
        ("ogasched-default", "defaults", 0.995),
        ("ogasched-switching", "rates switch every 250 slots", 1.05),
    ):
        result = run(scenario, seeds, "both", policies, overrides)
        line = command(scenario, seeds, "both", policies, overrides)
        for policy in policies[:-1]:
            hidden, revealed = row(result, "hidden", policy), row(result, "revealed", policy)
            found = hidden.fraction_of_stationary
            first = policy == policies[0]
            yield Figure(
                f"arrivals hidden, {title}, {policy}",
                line,
                f"≥ {goal:g} of y*" if first else "–",
                f"{said(found)} of y*{growth(hidden)}",
                at_least(found, goal) if first else "–",
            )
            yield Figure(
                f"the same against FAIRNESS, {title}, {policy}",
                line,
                "–",
                f"{said(hidden.ratio, change=True)} where both are blind, "
                f"{said(revealed.ratio, change=True)} against a FAIRNESS that sees arrivals",
                "–",
            )


def aware(seeds: int, overrides: dict[str, Any]) -> Iterator[Figure]:
    """The arrival-aware policy against the optimum of each slot and against FAIRNESS."""
    policies = ["ogasched-aware", "ogasched-aware:iterations=10", "ogasched-aware:iterations=5", "fairness"]
    for scenario, title, goal in (
        ("ogasched-default", "defaults", 9.0),
        ("ogasched-fig2", "Fig. 2", 14.0),
        ("ogasched-dense", "dense", 12.0),
    ):
        result = run(scenario, seeds, "revealed", policies, overrides)
        line = command(scenario, seeds, "revealed", policies, overrides)
        for policy, iterations, least in zip(policies, (20, 10, 5), (0.997, 0.99, None), strict=False):
            found = row(result, "revealed", policy).fraction_of_oracle
            text = "–" if least is None else f"≥ {least} of the optimum"
            reached = "–" if least is None else at_least(found, least)
            yield Figure(f"arrivals revealed, {title}, {iterations} iterations", line, text, said(found), reached)
        gap = next(o.gap for o in result.oracle_rows if o.oracle == "slot")
        yield Figure(
            f"certified gap of the slot optima, whole run, worst seed, {title}",
            line,
            "≤ 2e-4",
            "–" if gap is None else f"{gap:.1e}",
            "yes" if gap is not None and gap <= 2e-4 else "no",
        )
        ratio = row(result, "revealed", "ogasched-aware").ratio
        yield Figure(
            f"aware against FAIRNESS, both see arrivals, {title}",
            line,
            f"≥ +{goal:g} %",
            said(ratio, change=True),
            at_least(ratio, 1.0 + goal / 100.0),
        )


def printed(seeds: int, overrides: dict[str, Any]) -> Iterator[Figure]:
    """The algorithm as printed: what it earns, what it claims, how often it breaks constraints."""
    policies = ["ogasched-printed", "ogasched", "fairness"]
    for scenario in ("ogasched-default", "ogasched-fig2"):
        result = run(scenario, seeds, "both", policies, overrides)
        line = command(scenario, seeds, "both", policies, overrides)
        for information in ("hidden", "revealed"):
            found = row(result, information, "ogasched-printed")
            yield Figure(
                f"as printed against FAIRNESS, {scenario}, arrivals {information}",
                line,
                "–",
                f"earned {said(found.ratio, change=True)}, claimed {said(found.claimed_ratio, change=True)}, "
                f"constraints broken in {100 * found.violating_slots:.1f} % of the slots",
                "–",
            )


def page(figures: list[Figure], arguments: argparse.Namespace) -> str:
    """The table as Markdown."""
    last = ["`python -m benchmarks.slot` prints times per slot, with the NumPy and plain Python versions beside them."]
    return markdown("Figures", "benchmarks.figures", arguments, figures, last)


def main() -> None:
    arguments = arguments_of(__doc__, seeds=8)
    overrides: dict[str, Any] = {"horizon": 300} if arguments.quick else {}
    parts: list[Callable[[], Iterator[Figure]]] = [
        lambda: projection(10_000 if arguments.quick else 1_000_000),
        lambda: blind(arguments.seeds, overrides),
        lambda: aware(arguments.seeds, overrides),
        lambda: printed(arguments.seeds, overrides),
    ]
    show("OGASched", parts, arguments, lambda figures: page(figures, arguments))


if __name__ == "__main__":
    main()
