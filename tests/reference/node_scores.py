"""FGD's six policies, written plainly: every score of every node for every pod, with lists of devices.

It shares with the package only the random draws: the order of nodes and pods, and where a random pod goes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from berth.random import stream

Node = dict[str, Any]
Pod = tuple[int, int, int, int, str]


def fits(node: Node, pod: Pod) -> bool:
    cpu, memory, number, part, spec = pod
    if node["cpu"] < cpu or node["memory"] < memory:
        return False
    if number == 0:
        return True
    return (not spec or node["model"] in spec.split("|")) and sum(d >= part for d in node["devices"]) >= number


def fragments(node: Node, typical: list[tuple[Pod, float]]) -> float:
    found = 0.0
    for pod, share in typical:
        cpu, _, number, part, spec = pod
        usable = number > 0 and (not spec or node["model"] in spec.split("|")) and node["cpu"] >= cpu
        if usable and sum(d >= part for d in node["devices"]) >= number:
            found += share * sum(d for d in node["devices"] if d < part)
        else:
            found += share * sum(node["devices"])
    return found


def put(node: Node, pod: Pod, device: int | None) -> Node:
    """The node with this pod on it, on whole devices or a share of one."""
    cpu, memory, number, part, _ = pod
    devices = list(node["devices"])
    if device is not None:
        devices[device] -= part
    else:
        for i in [i for i, d in enumerate(devices) if d == 1000][:number]:
            devices[i] = 0
    return {**node, "cpu": node["cpu"] - cpu, "memory": node["memory"] - memory, "devices": devices}


def score(node: Node, pod: Pod, rule: int, typical: list[tuple[Pod, float]]) -> tuple[int, int | None]:
    """The score, and FGD's device for a share."""
    cpu, _, number, part, _ = pod
    free, asked, devices = sum(node["devices"]), number * part, node["devices"]
    shared = number == 1 and part < 1000
    if rule == 1:
        return int(100 * (1 - (node["cpu"] / 128e3 * (cpu / 128e3) + free / 8e3 * (asked / 8e3)) / 2)), None
    if rule == 2:
        if number == 0:
            return 0, None
        kind = "share" if shared else number
        base = 75 if set(node["kinds"]) == {kind} else 50 if kind in node["kinds"] else 0 if node["kinds"] else 25
        return 25 * (8000 - free) // 8000 + base, None
    if rule == 3:
        if number == 0:
            return 0, None
        if all(d == 1000 for d in devices):
            return max(33 - len(devices), len(devices)), None
        used = sorted(d for d in devices if d >= part)[:number]
        whole = sum(d == 1000 for d in used)
        return (max(50 - whole, 33) if whole else max(100 - sum(d * 100 // 1000 for d in used) // 10, 50)), None
    if rule == 4:
        left = 0.5 * (node["cpu"] - cpu) / 128e3 + 0.5 * (free - asked) / 8e3
        return int((1 - left) * 100), None
    if rule == 5:
        before = fragments(node, typical)
        choices: list[int | None] = [i for i, d in enumerate(devices) if d >= part] if shared else [None]
        found = [
            (int(100 / (1 + math.exp(-(before - fragments(put(node, pod, i), typical)) / 1000))), i) for i in choices
        ]
        return max(found, key=lambda one: one[0])
    return 0, None


def filled(nodes: pl.DataFrame, pods: pl.DataFrame, rule: int, seed: int) -> tuple[float, ...]:
    nodes = nodes.filter(pl.col("gpu") > 0).sort("sn")
    nodes = nodes[stream(seed, "nodes", "openb").permutation(len(nodes))]
    there: list[Node] = [
        {"cpu": cpu, "memory": memory, "devices": [1000] * gpu, "model": model, "kinds": []}
        for _, cpu, memory, gpu, model in nodes.iter_rows()
    ]
    total = sum(sum(node["devices"]) for node in there)
    listed: list[Pod] = [
        (cpu, memory, number, part if number else 0, spec or "")
        for cpu, memory, number, part, spec in pods.select(
            "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"
        ).iter_rows()
    ]
    counts: dict[Pod, int] = {}
    for cpu, _, number, part, spec in listed:
        key = cpu, 0, number, part, spec
        counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    sums = [0, *np.cumsum([count for _, count in ranked]).tolist()]
    kept = next(i for i, (_, high) in enumerate(pairwise(sums), 1) if high >= 0.95 * len(listed))
    typical = [(pod, count / sums[kept]) for pod, count in ranked[:kept]]
    rng = stream(seed, "pods", "openb")
    more = rng.integers(len(listed), size=4 * len(listed))
    order = [listed[i] for i in rng.permutation(len(listed))] + [listed[i] for i in more]
    draws = iter(stream(seed, "random", "openb").random((len(order), 2)))
    asked = given = 0
    reached: list[float] = []
    for pod in order:
        draw = next(draws)
        able = [i for i, node in enumerate(there) if fits(node, pod)]
        asked += pod[2] * pod[3]
        if able:
            found = {i: score(there[i], pod, rule, typical) for i in able}
            where = able[int(draw[0] * len(able))] if rule == 0 else max(able, key=lambda i: found[i][0])
            device = found[where][1]
            if rule != 5 and pod[2] == 1 and pod[3] < 1000:
                holders = [i for i, d in enumerate(there[where]["devices"]) if d >= pod[3]]
                device = holders[int(draw[1] * len(holders))] if rule == 0 else None
                if device is None:
                    device = min(holders, key=lambda i: there[where]["devices"][i])
            kinds = [*there[where]["kinds"], *(["share" if pod[3] < 1000 else pod[2]] if pod[2] else [])]
            there[where] = {**put(there[where], pod, device), "kinds": kinds}
            given += pod[2] * pod[3]
        while len(reached) < 2 and asked >= (1.0, 1.3)[len(reached)] * total:
            reached.append(100 * given / total)
        if len(reached) == 2:
            break
    return tuple(reached)
