"""The smallest changes that let a gang start, beside a referee that tries every smaller one of the same kind."""

from __future__ import annotations

import copy
from itertools import chain, combinations
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from berth.live.engines.kubernetes.changes import PodChange
from berth.live.engines.kubernetes.cluster import cluster_of
from berth.live.engines.kubernetes.ending import fewest, pods_to_end
from berth.live.engines.kubernetes.fitting import Fitting
from berth.live.engines.kubernetes.plan import plan_gang
from berth.live.engines.kubernetes.quantities import read_amount, unit_of
from tests.live.engines.kubernetes.builders import Object, clusters, job, node, plain_fits, pod, rule_text, specs
from tests.live.engines.kubernetes.test_plan import gang_of, wanting

There = tuple[list[Object], list[Object]]
Found = dict[str, list[PodChange]]


@given(clusters(), specs(), st.integers(1, 3))
def test_every_change_suffices_and_no_smaller_one_of_its_kind_does(there: There, spec: Object, count: int) -> None:
    plan = plan_gang(cluster_of(*there), gang_of(job(count, spec)))
    assume(not plan.starts)
    found: Found = {}
    for change in plan.changes:
        found.setdefault(change.kind, []).append(change)
    for check in (
        less_of_a_resource,
        fewer_pods,
        tolerations_and_dropped_rules,
        running_pods_that_must_end,
        cordons_to_lift,
    ):
        check(found, there, spec, count)


def asking(spec: Object, amounts: dict[str, int]) -> Object:
    """The spec with other requests, in thousandths."""
    made = copy.deepcopy(spec)
    requests = made["containers"][0]["resources"]["requests"]
    requests.update({name: f"{milli}m" for name, milli in amounts.items()})
    return made


def asked_of(spec: Object) -> dict[str, int]:
    requests = spec["containers"][0]["resources"]["requests"]
    return {name: read_amount(name, text) for name, text in requests.items()}


def less_of_a_resource(found: Found, there: There, spec: Object, count: int) -> None:
    mine = found.get("demand", [])
    asked = asked_of(spec)
    units = {name: unit_of(name, milli) for name, milli in asked.items()}
    for change in mine:
        amounts = {name: read_amount(name, text) for name, text in change.values["requests"].items()}
        assert plain_fits(*there, [asking(spec, amounts)] * count)
        for name, milli in amounts.items():
            assert 0 < milli < asked[name]
            more = {**amounts, name: min(milli + units[name], asked[name])}
            assert not plain_fits(*there, [asking(spec, more)] * count)
    if not mine:
        assert not plain_fits(*there, [asking(spec, units)] * count)
    single = {name for change in mine for name in change.values["requests"] if len(change.values["requests"]) == 1}
    if single or not mine:
        for name in set(asked) - single:
            assert not plain_fits(*there, [asking(spec, {name: units[name]})] * count)


def fewer_pods(found: Found, there: There, spec: Object, count: int) -> None:
    mine = found.get("tasks", [])
    best = mine[0].values["count"] if mine else 0
    assert best < count
    assert not best or plain_fits(*there, [spec] * best)
    assert best + 1 == count or not plain_fits(*there, [spec] * (best + 1))


def subsets(items: list[str], sizes: range) -> Any:
    return chain.from_iterable(combinations(items, size) for size in sizes)


def texts_of(there: There, spec: Object) -> tuple[list[str], list[str]]:
    """The taints of users and the rules that may count, as texts."""
    taints = {
        f"{taint['key']}{'=' + taint['value'] if taint['value'] else ''}:{taint['effect']}"
        for one in there[0]
        for taint in one["spec"]["taints"]
    }
    rules = {f"{key}={value}" for key, value in spec.get("nodeSelector", {}).items()}
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    for term in (required or {"nodeSelectorTerms": []})["nodeSelectorTerms"]:
        rules |= {rule_text(rule) for key in ("matchExpressions", "matchFields") for rule in term.get(key, [])}
    return sorted(taints), sorted(rules)


def tolerations_and_dropped_rules(found: Found, there: There, spec: Object, count: int) -> None:
    gang = [spec] * count
    taints, rules = texts_of(there, spec)
    for kind, texts in (("tolerate", taints), ("drop", rules)):
        change = found.get(kind)
        size = len(change[0].values[kind]) if change else len(texts) + 1
        if change:
            assert plain_fits(
                *there, gang, **{"tolerated" if kind == "tolerate" else "dropped": change[0].values[kind]}
            )
        for chosen in subsets(texts, range(1, size)):
            assert not plain_fits(*there, gang, **{"tolerated" if kind == "tolerate" else "dropped": chosen})
    both = found.get("tolerate+drop")
    if both:
        assert plain_fits(*there, gang, both[0].values["tolerate"], both[0].values["drop"])
    elif "tolerate" not in found and "drop" not in found and len(taints) + len(rules) <= 6:
        assert not any(
            plain_fits(*there, gang, some, others)
            for some in subsets(taints, range(1, len(taints) + 1))
            for others in subsets(rules, range(1, len(rules) + 1))
        )


def running_pods_that_must_end(found: Found, there: There, spec: Object, count: int) -> None:
    change = found.get("end")
    nodes, pods = there
    may_end = [
        one["metadata"]["name"]
        for one in pods
        if one["status"]["phase"] == "Running" and "ownerReferences" not in one["metadata"]
    ]

    def fits(ended: tuple[str, ...]) -> bool:
        return plain_fits(nodes, [one for one in pods if one["metadata"]["name"] not in ended], [spec] * count)

    chosen = tuple(name.removeprefix("default/") for name in change[0].values["pods"]) if change else ()
    assert set(chosen) <= set(may_end)
    assert len(set(chosen)) == len(chosen)
    if chosen:
        assert fits(chosen)
    size = len(chosen) if chosen else len(may_end) + 1
    assert not any(fits(some) for some in subsets(may_end, range(1, size)))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=6),
    st.lists(st.integers(3, 6), min_size=3, max_size=3),
    st.integers(2, 3),
    st.integers(2, 4),
)
def test_the_fewest_pods_to_end_on_open_nodes(
    held: list[tuple[int, int]], sizes: list[int], asked: int, count: int
) -> None:
    nodes = [node(f"n{i}", {"cpu": str(size), "pods": "9"}) for i, size in enumerate(sizes)]
    pods = [pod(f"p{i}", f"n{place}", {"cpu": str(size)}) for i, (place, size) in enumerate(held)]
    spec = wanting(cpu=str(asked))
    cluster = cluster_of(nodes, pods)
    fitting = Fitting.of(cluster, gang_of(job(count, spec)))
    assume(not fitting.fits())
    ended = pods_to_end(cluster, fitting)

    def room(gone: set[str]) -> int:
        free = list(sizes)
        for i, (place, size) in enumerate(held):
            free[place] -= 0 if f"p{i}" in gone else size
        return sum(max(much, 0) // asked for much in free)

    names = [f"p{i}" for i in range(len(held))]
    enough = (n for n in range(len(names) + 1) if any(room(set(some)) >= count for some in combinations(names, n)))
    best = next(enough, None)
    assert (None if ended is None else len(ended)) == best
    assert ended is None or room({one.metadata.name for one in ended}) >= count


def cordons_to_lift(found: Found, there: There, spec: Object, count: int) -> None:
    change = found.get("uncordon")
    cordoned = [one["metadata"]["name"] for one in there[0] if one["spec"].get("unschedulable")]

    def fits(lifted: tuple[str, ...]) -> bool:
        nodes = copy.deepcopy(there[0])
        for one in nodes:
            if one["metadata"]["name"] in lifted:
                one["spec"]["unschedulable"] = False
        return plain_fits(nodes, there[1], [spec] * count)

    chosen = tuple(change[0].values["nodes"]) if change else ()
    assert not chosen or fits(chosen)
    size = len(chosen) if chosen else len(cordoned) + 1
    assert not any(fits(some) for some in subsets(cordoned, range(1, size)))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=7),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_the_fewest_rows_that_cover(rows: list[tuple[int, int]], need: tuple[int, int]) -> None:
    def covers(chosen: tuple[int, ...] | list[int]) -> bool:
        return all(sum(rows[i][k] for i in chosen) >= need[k] for k in (0, 1))

    found = fewest(rows, need)
    sizes = range(len(rows) + 1)
    best = next((size for size in sizes if any(map(covers, combinations(range(len(rows)), size)))), None)
    assert (found is None) == (best is None)
    assert found is None or (covers(found) and len(found) == best)


def test_several_resources_are_reduced_together() -> None:
    there = [node("n0", {"cpu": "4", "memory": "8Gi", "pods": "10"})], list[Object]()
    plan = plan_gang(cluster_of(*there), gang_of(job(1, wanting(cpu="8", memory="16Gi"))))
    text = "request 4 cpu instead of 8 and 8Gi memory instead of 16Gi for each pod"
    assert [str(change) for change in plan.changes] == [text]


def test_pods_of_several_kinds_end_as_few_as_needed() -> None:
    nodes = [node(f"n{i}", {"cpu": "4", "pods": "10"}) for i in range(4)]
    pods = [pod(f"p{i}", f"n{i}", {"cpu": "3"}) for i in range(4)]
    parts = [
        {"name": name, "template": {"spec": {"parallelism": 1, "template": {"spec": wanting(cpu=cpu)}}}}
        for name, cpu in (("leader", "2"), ("worker", "3"))
    ]
    jobset = {"kind": "JobSet", "metadata": {"name": "train"}, "spec": {"replicatedJobs": parts}}
    plan = plan_gang(cluster_of(nodes, pods), gang_of(jobset))
    ended = next(change for change in plan.changes if change.kind == "end").values["pods"]
    assert len(ended) == 2
    left = [one for one in pods if f"default/{one['metadata']['name']}" not in ended]
    assert plan_gang(cluster_of(nodes, left), gang_of(jobset)).starts
