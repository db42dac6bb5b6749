"""Pods that come one by one to nodes with shared GPUs, and never leave: six scores of nodes, as in FGD's evaluation.

From "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (ATC 2023) and the
configuration that its authors published. Scores are whole numbers from 0 to 100, as in Kubernetes; among nodes with the
best score the first is chosen. A pod that fits nowhere is turned away. CPUs and GPUs are counted in thousandths.

The scores of a class of pods are kept, and only those of nodes that have changed since are computed again.

Axes: N nodes, G devices of a node, P pods, C classes of pods, T typical classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inner, lean

__all__ = ["TAGS", "WHOLE", "Nodes", "Pods", "Scores", "Typical", "place_pods"]

RANDOM, DOT_PRODUCT, CLUSTERING, PACKING, BEST_FIT, FGD = range(6)
WHOLE, MOST_CPU, MOST_GPU = 1000, 128_000, 8000
TAGS = 9
"""Kinds of pods by GPUs: 0 for a share of one, else their number."""


class Nodes(NamedTuple):
    """What is free: cpu and memory (N,), thousandths of each device (N, G); number of devices, model, and pods by kind.

    `version` (N,) counts the pods of a node.
    """

    cpu: Any
    memory: Any
    device: Any
    devices: Any
    model: Any
    kinds: Any
    version: Any


class Pods(NamedTuple):
    """Classes of pods: cpu, memory, number of GPUs and thousandths of each (C,), and whether a model will do (C, M)."""

    cpu: Any
    memory: Any
    number: Any
    part: Any
    takes: Any


class Typical(NamedTuple):
    """Typical pods and their shares (T,)."""

    cpu: Any
    number: Any
    part: Any
    takes: Any
    share: Any


class Scores(NamedTuple):
    """Scores of nodes by class and the best device for a share, −1 where none fits, and of which version, (C, N)."""

    score: Any
    device: Any
    version: Any


@inner
def _holders(nodes: Nodes, n: int, part: int) -> Any:
    """Devices of a node that have this much."""
    count = 0
    for g in range(nodes.devices[n]):
        if nodes.device[n, g] >= part:
            count += 1
    return count


@inner
def _fits(nodes: Nodes, pods: Pods, c: int, n: int) -> Any:
    if nodes.cpu[n] < pods.cpu[c] or nodes.memory[n] < pods.memory[c]:
        return False
    if pods.number[c] == 0:
        return True
    return pods.takes[c, nodes.model[n]] and _holders(nodes, n, pods.part[c]) >= pods.number[c]


@inner
def _free(nodes: Nodes, n: int) -> Any:
    total = 0
    for g in range(nodes.devices[n]):
        total += nodes.device[n, g]
    return total


@inner
def _fragments(nodes: Nodes, pods: Typical, n: int, cpu: int) -> Any:
    """Free thousandths of devices that a typical pod cannot use, expected, with this much cpu."""
    total, found = _free(nodes, n), 0.0
    if total == 0:
        return 0.0
    for t in range(pods.share.shape[0]):
        lost = total
        enough = pods.part[t] > 0 and pods.takes[t, nodes.model[n]] and cpu >= pods.cpu[t]
        if enough and _holders(nodes, n, pods.part[t]) >= pods.number[t]:
            lost = 0
            for g in range(nodes.devices[n]):
                if nodes.device[n, g] < pods.part[t]:
                    lost += nodes.device[n, g]
        found += pods.share[t] * lost
    return found


@inner
def _take(nodes: Nodes, n: int, number: int) -> None:
    """Take whole devices, the first that are free."""
    left = number
    for g in range(nodes.devices[n]):
        if left == 0:
            return
        if nodes.device[n, g] == WHOLE:
            nodes.device[n, g] = 0
            left -= 1


@inner
def _gradient(before: float, after: float) -> Any:
    return int(100.0 / (1.0 + np.exp(-(before - after) / WHOLE)))


@inner
def _fgd(nodes: Nodes, pods: Pods, typical: Typical, c: int, n: int, saved: Any) -> Any:
    """The score, and the device for a share."""
    before, cpu = _fragments(nodes, typical, n, nodes.cpu[n]), nodes.cpu[n] - pods.cpu[c]
    if pods.number[c] == 1 and pods.part[c] < WHOLE:
        best, where = 0, -1
        for g in range(nodes.devices[n]):
            if nodes.device[n, g] >= pods.part[c]:
                nodes.device[n, g] -= pods.part[c]
                score = _gradient(before, _fragments(nodes, typical, n, cpu))
                nodes.device[n, g] += pods.part[c]
                if where < 0 or score > best:
                    best, where = score, g
        return best, where
    for g in range(nodes.devices[n]):
        saved[g] = nodes.device[n, g]
    _take(nodes, n, pods.number[c])
    score = _gradient(before, _fragments(nodes, typical, n, cpu))
    for g in range(nodes.devices[n]):
        nodes.device[n, g] = saved[g]
    return score, -1


@inner
def _packing(nodes: Nodes, pods: Pods, c: int, n: int) -> Any:
    if pods.part[c] == 0:
        return 0
    whole = _holders(nodes, n, WHOLE)
    if whole == nodes.devices[n]:
        return max(33 - whole, whole)
    if pods.part[c] < WHOLE:
        least = 2 * WHOLE
        for g in range(nodes.devices[n]):
            if nodes.device[n, g] >= pods.part[c]:
                least = min(least, nodes.device[n, g])
        return max(50 - 1, 33) if least == WHOLE else max(100 - least * 100 // WHOLE // 10, 50)
    return max(50 - pods.number[c], 33)


@inner
def _clustering(nodes: Nodes, pods: Pods, c: int, n: int) -> Any:
    if pods.number[c] == 0:
        return 0
    kind = 0 if pods.part[c] < WHOLE else pods.number[c]
    kinds = 0
    for tag in range(TAGS):
        if nodes.kinds[n, tag] > 0:
            kinds += 1
    used = 25 * (MOST_GPU - _free(nodes, n)) // MOST_GPU
    if nodes.kinds[n, kind] > 0:
        return used + (75 if kinds == 1 else 50)
    return used + (25 if kinds == 0 else 0)


@inner
def _score(nodes: Nodes, pods: Pods, typical: Typical, c: int, n: int, rule: int, saved: Any) -> Any:
    if rule == FGD:
        return _fgd(nodes, pods, typical, c, n, saved)
    if rule == PACKING:
        return _packing(nodes, pods, c, n), -1
    if rule == CLUSTERING:
        return _clustering(nodes, pods, c, n), -1
    gpu = pods.number[c] * pods.part[c]
    if rule == BEST_FIT:
        left = 0.5 * (nodes.cpu[n] - pods.cpu[c]) / MOST_CPU + 0.5 * (_free(nodes, n) - gpu) / MOST_GPU
        return int((1.0 - left) * 100), -1
    if rule == DOT_PRODUCT:
        product = (nodes.cpu[n] / MOST_CPU) * (pods.cpu[c] / MOST_CPU) + (_free(nodes, n) / MOST_GPU) * (gpu / MOST_GPU)
        return int(100 * (1.0 - product / 2)), -1
    return 0, -1


@inner
def _device(nodes: Nodes, n: int, part: int, rule: int, draw: float) -> Any:
    """The device for a share: any for RANDOM, else the fullest that has it."""
    chosen, left = -1, int(draw * _holders(nodes, n, part))
    for g in range(nodes.devices[n]):
        if nodes.device[n, g] < part:
            continue
        if rule == RANDOM:
            if left == 0:
                return g
            left -= 1
        elif chosen < 0 or nodes.device[n, g] < nodes.device[n, chosen]:
            chosen = g
    return chosen


@lean
def place_pods(
    nodes: Nodes,
    pods: Pods,
    typical: Typical,
    scores: Scores,
    order: Any,
    rule: int,
    draws: Any,
    saved: Any,
    given: Any,
) -> None:
    """Place pods of the classes `order` (P,); `given` (P,) gets the thousandths of GPUs that each took.

    `draws` (P, 2) are uniform, for RANDOM; `saved` (G,) is scratch.
    """
    for p in range(order.shape[0]):
        c, best, count, where = order[p], -1, 0, -1
        for n in range(nodes.cpu.shape[0]):
            if scores.version[c, n] != nodes.version[n]:
                scores.version[c, n] = nodes.version[n]
                scores.score[c, n] = -1
                if _fits(nodes, pods, c, n):
                    scores.score[c, n], scores.device[c, n] = _score(nodes, pods, typical, c, n, rule, saved)
            score = scores.score[c, n]
            if score > best:
                best, where = score, n
            count += score >= 0
        if rule == RANDOM and count > 0:
            left = int(draws[p, 0] * count)
            for n in range(nodes.cpu.shape[0]):
                if scores.score[c, n] >= 0:
                    where, left = n, left - 1
                    if left < 0:
                        break
        given[p] = 0
        if where < 0:
            continue
        nodes.cpu[where] -= pods.cpu[c]
        nodes.memory[where] -= pods.memory[c]
        nodes.version[where] += 1
        if pods.number[c] == 0:
            continue
        given[p] = pods.number[c] * pods.part[c]
        if pods.part[c] < WHOLE:
            g = scores.device[c, where] if rule == FGD else _device(nodes, where, pods.part[c], rule, draws[p, 1])
            nodes.device[where, g] -= pods.part[c]
            nodes.kinds[where, 0] += 1
        else:
            _take(nodes, where, pods.number[c])
            nodes.kinds[where, pods.number[c]] += 1
