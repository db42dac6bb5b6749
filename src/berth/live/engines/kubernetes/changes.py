"""The smallest changes that let a gang start now, one of each kind.

Every change is tried out: with it, the gang fits. For equal pods no smaller change of its kind would do; for pods of
several kinds, none that berth's placement finds. The kinds: less of a resource for each pod, fewer pods, tolerations,
rules of node selector and node affinity dropped, cordons lifted, running pods ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from berth.files.quantities import format_amounts, format_quantity
from berth.files.wording import counted
from berth.live.core.jobs import Role
from berth.live.core.remedies import Change
from berth.live.engines.kubernetes.cluster import Cluster
from berth.live.engines.kubernetes.ending import pods_to_end
from berth.live.engines.kubernetes.fitting import Fitting
from berth.live.engines.kubernetes.pods import PODS
from berth.live.engines.kubernetes.quantities import unit_of

__all__ = ["PodChange", "amount_text", "listed", "pods_text", "smallest_changes"]


@dataclass(frozen=True)
class PodChange(Change):
    """A change with its values for programs; `kind` is demand, tasks, tolerate, drop, uncordon or end."""

    values: Mapping[str, Any] = field(default_factory=dict)


TRIES = 2_000
"""The most sets of tolerations and rules that are tried."""
NAMED = 5
SCALES = 1_000


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Names in a row; of many, the first.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def pods_text(number: int, kind: str) -> str:
    """A number of pods, with their kind unless the gang has one kind only.

    >>> pods_text(1, "pod"), pods_text(2, "worker")
    ('1 pod', '2 pods of worker')
    """
    return counted(number, "pod") + ("" if kind in ("pod", "task") else f" of {kind}")


def amount_text(name: str, milli: int) -> str:
    """An amount of a resource.

    >>> amount_text("nvidia.com/gpu", 2000), amount_text("cpu", 250)
    ('2 nvidia.com/gpu', '250m cpu')
    """
    return f"{format_quantity(milli)} {name}"


def smallest_changes(cluster: Cluster, fitting: Fitting) -> tuple[PodChange, ...]:
    """The smallest change of each kind that suffices by itself."""
    found: list[PodChange] = []
    for place in range(len(fitting.roles)):
        found += _less(fitting, place)
        found += _fewer(fitting, place)
    found += _rules(fitting)
    found += _uncordoned(fitting)
    ended = pods_to_end(cluster, fitting)
    if ended:
        names = [pod.name for pod in ended]
        many = "" if len(names) == 1 else f"{len(names)} pods: "
        text = f"wait for the end of {many or 'pod '}{listed(names)}"
        found.append(PodChange("end", (text,), {"pods": names}))
    return tuple(found)


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from `low` to `high` that fits; `low` does."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


# ---------------------------------------------------------------------------- smaller pods


def _less(fitting: Fitting, place: int) -> Iterator[PodChange]:
    """Less of one resource, or, if no single one suffices, of several, for each pod of a kind."""
    role = fitting.roles[place]
    asked = {name: milli for name, milli in role.demand.items() if milli and name != PODS}
    units = {name: unit_of(name, milli) for name, milli in asked.items()}
    steps = {name: (milli - 1) // units[name] for name, milli in asked.items()}  # below what is asked for

    def fits(amounts: dict[str, int]) -> bool:
        return fitting.fits(fitting.with_role(place, demand={**role.demand, **amounts}))

    single = False
    for name, most in steps.items():
        if most >= 1 and fits({name: units[name]}):
            best = _largest(1, most, lambda step, name=name: fits({name: step * units[name]}))  # type: ignore[misc]
            single = True
            yield _smaller(role, {name: best * units[name]})
    able = sorted(name for name, most in steps.items() if most >= 1)
    if single or len(able) < 2:
        return

    def scaled(scale: int) -> dict[str, int]:
        return {name: max(steps[name] * scale // SCALES, 1) * units[name] for name in able}

    if not fits(scaled(0)):
        return
    amounts = scaled(_largest(0, SCALES, lambda scale: fits(scaled(scale))))
    for name in able:
        if fits({**amounts, name: asked[name]}):
            amounts[name] = asked[name]
            continue
        step = _largest(
            amounts[name] // units[name],
            steps[name],
            lambda step, name=name: fits({**amounts, name: step * units[name]}),  # type: ignore[misc]
        )
        amounts[name] = step * units[name]
    yield _smaller(role, {name: milli for name, milli in amounts.items() if milli < asked[name]})


def _smaller(role: Role, amounts: dict[str, int]) -> PodChange:
    parts = [
        f"{amount_text(name, milli)} instead of {format_quantity(role.demand[name])}" for name, milli in amounts.items()
    ]
    text = f"request {' and '.join(parts)} for each {pods_text(1, role.name).removeprefix('1 ')}"
    return PodChange("demand", (text,), {"role": role.name, "requests": format_amounts(amounts)})


def _fewer(fitting: Fitting, place: int) -> Iterator[PodChange]:
    role = fitting.roles[place]

    def fits(count: int) -> bool:
        return fitting.fits(fitting.with_role(place, count=count, minimum=count))

    if role.minimum > 1 and fits(1):
        best = _largest(1, role.minimum - 1, fits)
        text = f"run {pods_text(best, role.name)} instead of {role.minimum}"
        yield PodChange("tasks", (text,), {"role": role.name, "count": best})


# ---------------------------------------------------------------------------- more nodes


def _rules(fitting: Fitting) -> Iterator[PodChange]:
    """Tolerations alone, dropped rules alone, or, if neither suffices, both; the smallest number of them."""
    taints = dict.fromkeys(
        str(taint)
        for pods in fitting.gang.pods
        for node in fitting.nodes
        for taint in pods.rules.untolerated(node.taints)
        if not taint.condition
    )
    rules = dict.fromkeys(text for pods in fitting.gang.pods for text in pods.rules.texts)
    tolerations, dropped = [("tolerate", text) for text in taints], [("drop", text) for text in rules]
    found = False
    for candidates in (tolerations, dropped):
        for change in _smallest_set(fitting, candidates):
            found = True
            yield change
    if not found and tolerations and dropped:
        yield from _smallest_set(fitting, [*tolerations, *dropped])


def _smallest_set(fitting: Fitting, candidates: list[tuple[str, str]]) -> Iterator[PodChange]:
    def fits(chosen: Sequence[tuple[str, str]]) -> bool:
        dropped = frozenset(text for what, text in chosen if what == "drop")
        tolerated = frozenset(text for what, text in chosen if what == "tolerate")
        return fitting.fits(may=fitting.may_with(dropped, tolerated))

    if not candidates or not fits(candidates):
        return
    tries = 0
    for size in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, size):
            tries += 1
            if tries > TRIES:
                return
            if fits(chosen):
                values: dict[str, list[str]] = {}
                for what, text in chosen:
                    values.setdefault(what, []).append(text)
                yield PodChange("+".join(values), tuple(map(_rule_text, chosen)), values)
                return


def _rule_text(chosen: tuple[str, str]) -> str:
    what, text = chosen
    return f"tolerate the taint {text}" if what == "tolerate" else f"drop the requirement {text}"


def _uncordoned(fitting: Fitting) -> Iterator[PodChange]:
    """Lift the cordon of nodes that nothing else keeps the pods from: as few as suffice, those with most room first."""
    key = "node.kubernetes.io/unschedulable"
    lifted = [replace(node, taints=tuple(taint for taint in node.taints if taint.key != key)) for node in fitting.nodes]
    other = replace(fitting, nodes=tuple(lifted))
    more = other.may_with()
    gained = np.flatnonzero((more & ~fitting.may).any(axis=0))
    if not len(gained) or not fitting.fits(may=more):
        return
    order = gained[np.argsort(-fitting.rooms(may=more).sum(axis=0)[gained], kind="stable")]

    def fits(count: int) -> bool:
        may = fitting.may.copy()
        may[:, order[:count]] = more[:, order[:count]]
        return fitting.fits(may=may)

    fewest = len(order) - _largest(0, len(order), lambda fewer: fits(len(order) - fewer))
    names = [fitting.nodes[r].name for r in order[:fewest].tolist()]
    yield PodChange("uncordon", (f"uncordon {listed(names)}",), {"nodes": names})
