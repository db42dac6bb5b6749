"""Mirror steps and seating against plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from berth.families.allocation.kernels.lanes import build_lanes, limits, pack, unpack
from berth.families.allocation.kernels.seating import seat_components
from berth.families.allocation.kernels.slot import mirror_step

seeds = st.integers(0, 10**6)


@given(seeds)
def test_a_mirror_step_is_the_nearest_feasible_point_in_relative_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ports = int(rng.integers(1, 5))
    cap, capacity = rng.uniform(0.2, 3.0, (ports, 1)), rng.uniform(0.2, 4.0, (1, 1))
    lanes = build_lanes(
        np.array([0, ports]),
        np.arange(ports),
        cap,
        capacity,
        np.zeros((1, 1), dtype=np.int64),
        np.ones((1, 1)),
        ports,
        (np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1)),
    )
    y, g = rng.uniform(0.05, 0.5, (ports, 1)), rng.normal(0, 1, (ports, 1))
    laid = [np.empty(lanes.cap.shape) for _ in range(3)]
    pack(lanes.element, y, laid[0])
    pack(lanes.element, g, laid[1])
    mirror_step(lanes, limits(lanes, capacity), laid[0], laid[1], 0.7, 1e-9, laid[2])
    found = np.zeros((ports, 1))
    unpack(lanes.element, laid[2], found)
    assert (found <= cap + 1e-12).all()
    assert found.sum() <= capacity[0, 0] * (1 + 1e-12)
    z = (np.maximum(y, 1e-9 * cap) * np.exp(0.7 * g))[:, 0]

    def divergence(v: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float((v * np.log(v / z) - v + z).sum())

    start = np.minimum(cap[:, 0], capacity[0, 0] / ports) * 0.5
    anything: Any = minimize
    referee = anything(
        divergence,
        start,
        method="SLSQP",
        bounds=[(1e-9, float(a)) for a in cap[:, 0]],
        constraints={"type": "ineq", "fun": lambda v: capacity[0, 0] - v.sum()},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert divergence(np.maximum(found[:, 0], 1e-12)) <= float(referee.fun) + 1e-6


@given(seeds)
def test_a_gang_that_fits_is_seated(seed: int) -> None:
    """One job, components on servers: seated exactly when some assignment of enough components fits."""
    rng = np.random.default_rng(seed)
    components, servers = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    channels = [(p, r) for r in range(servers) for p in range(components) if rng.random() < 0.8]
    port = np.array([p for p, _ in channels], dtype=np.int64)
    server = np.array([r for _, r in channels], dtype=np.int64)
    demand = rng.choice([0.1, 0.2, 0.3, 0.6], (components, 2))
    cap = demand[port] if channels else np.zeros((0, 2))
    left = rng.choice([0.3, 0.6, 0.9], (servers, 2))
    minimum = int(rng.integers(1, components + 1))
    order = np.argsort(port, kind="stable")
    start = np.searchsorted(port[order], np.arange(components + 1))
    floor, seated = np.zeros_like(cap), np.zeros(1, dtype=np.bool_)
    seat_components(
        np.array([0]),
        np.zeros(components, dtype=np.int64),
        np.array([minimum]),
        1.0,
        start,
        order,
        server,
        cap,
        rng.random(cap.shape),
        left.copy(),
        floor,
        seated,
    )
    options = [[-1, *np.flatnonzero(port == p).tolist()] for p in range(components)]
    possible = False
    for seats in itertools.product(*options):
        taken = [e for e in seats if e >= 0]
        used = np.zeros_like(left)
        for e in taken:
            used[server[e]] += cap[e]
        possible |= len(taken) >= minimum and bool((used <= left + 1e-9).all())
    assert bool(seated[0]) == possible
    assert (floor.sum() > 0) == possible
