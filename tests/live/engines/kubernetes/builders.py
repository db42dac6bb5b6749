"""Kubernetes objects as the API gives them, hypothesis strategies for them, and a slow referee that tries everything.

The referee reads the plain objects by the definitions of the Kubernetes documentation and shares no code with berth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
UNITS = {"": Fraction(1), "m": Fraction(1, 1000), "Gi": Fraction(2**30), "Mi": Fraction(2**20)}


def node(
    name: str,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: str = "True",
    cordoned: bool = False,
) -> Object:
    spec: Object = {"taints": [dict(taint) for taint in taints]}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {**spec, "unschedulable": True} if cordoned else spec,
        "status": {
            "allocatable": dict(allocatable or {"cpu": "4", "memory": "8Gi", "pods": "10"}),
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(
    name: str,
    on: str = "",
    requests: Mapping[str, str] | None = None,
    phase: str = "",
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    **spec: Any,
) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "owner", "controller": True}]
    bound = {"nodeName": on} if on else {}
    containers = [{"name": "main", "resources": {"requests": dict(requests or {"cpu": "1"})}}]
    status = {"phase": phase or ("Running" if on else "Pending")}
    body = {"containers": containers, **bound, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body, "status": status}


def job(count: int, spec: Mapping[str, Any], name: str = "train") -> Object:
    inner = {"parallelism": count, "template": {"spec": dict(spec)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": inner}


# ---------------------------------------------------------------------------- the referee


def amount(text: str) -> Fraction:
    number = text.rstrip("mGMi")
    return Fraction(number) * UNITS[text[len(number) :]]


def plain_tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """ "A toleration matches a taint if the keys are the same and the effects are the same, and the operator is Exists
    (in which case no value should be specified), or the operator is Equal and the values should be equal. An empty key
    with operator Exists matches all keys, values and effects. An empty effect matches all effects with the key." """
    operator = toleration.get("operator") or "Equal"
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return operator == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return operator == "Exists" or toleration.get("value", "") == taint.get("value", "")


def plain_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "NotIn":
        return labels.get(key) not in values
    if key not in labels:
        return False
    if operator == "Exists":
        return True
    if operator == "In":
        return labels[key] in values
    try:
        have, bound = int(labels[key]), int(values[0])
    except ValueError:
        return False
    return have > bound if operator == "Gt" else have < bound


def plain_may_use(
    spec: Mapping[str, Any], where: Object, tolerated: Iterable[str] = (), dropped: Iterable[str] = ()
) -> bool:
    """Whether a pod may use a node; texts of taints and rules that do not count are those of berth's changes."""
    labels, name, dropped = where["metadata"]["labels"], where["metadata"]["name"], set(dropped)
    taints = [*where["spec"]["taints"]]
    if where["spec"].get("unschedulable"):
        taints.append(UNSCHEDULABLE)
    ready = where["status"]["conditions"][0]["status"]
    if ready != "True":
        state = "not-ready" if ready == "False" else "unreachable"
        taints.append({"key": f"node.kubernetes.io/{state}", "value": "", "effect": "NoSchedule"})
    for taint in taints:
        value = f"={taint['value']}" if taint.get("value") else ""
        known = f"{taint['key']}{value}:{taint['effect']}" in tolerated
        if taint["effect"] == "PreferNoSchedule" or known:
            continue
        if not any(plain_tolerates(toleration, taint) for toleration in spec.get("tolerations", [])):
            return False
    for key, value in spec.get("nodeSelector", {}).items():
        if f"{key}={value}" not in dropped and labels.get(key) != value:
            return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    for term in required["nodeSelectorTerms"]:
        rules = [(rule, labels) for rule in term.get("matchExpressions", [])]
        rules += [(rule, {"metadata.name": name}) for rule in term.get("matchFields", [])]
        if rules and all(rule_text(rule) in dropped or plain_matches(rule, facts) for rule, facts in rules):
            return True
    return False


def rule_text(rule: Mapping[str, Any]) -> str:
    if rule["operator"] in ("Exists", "DoesNotExist"):
        return f"{rule['key']} {rule['operator']}"
    if rule["operator"] in ("Gt", "Lt"):
        return f"{rule['key']} {rule['operator']} {rule['values'][0]}"
    return f"{rule['key']} {rule['operator']} ({', '.join(rule['values'])})"


def plain_requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """What a pod of one container requests, and one pod."""
    given = spec["containers"][0]["resources"]["requests"]
    return {**{name: amount(text) for name, text in given.items()}, "pods": Fraction(1)}


def plain_fits(
    nodes: Sequence[Object],
    pods: Sequence[Object],
    gang: Sequence[Mapping[str, Any]],
    tolerated: Iterable[str] = (),
    dropped: Iterable[str] = (),
) -> bool:
    """Whether the pods of a gang, a spec for each, fit somehow: every assignment to nodes is tried."""
    tolerated, dropped = set(tolerated), set(dropped)
    may = [[plain_may_use(spec, where, tolerated, dropped) for where in nodes] for spec in gang]
    return any(
        all(may[i][r] for i, r in enumerate(chosen)) and not over(nodes, pods, [*zip(gang, chosen, strict=True)])
        for chosen in product(range(len(nodes)), repeat=len(gang))
    )


def over(
    nodes: Sequence[Object], pods: Sequence[Object], gang: Sequence[tuple[Mapping[str, Any], int]]
) -> list[tuple[str, str]]:
    """Nodes and resources of which the pods of a gang, and those that run, take more than there is.

    Only resources count that pods of the gang take there: running pods alone may exceed a node.
    """
    found = []
    for r, where in enumerate(nodes):
        mine = [plain_requests(spec) for spec, place in gang if place == r]
        name = where["metadata"]["name"]
        running = [
            plain_requests(one["spec"])
            for one in pods
            if one["spec"].get("nodeName") == name and one["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        for resource in {resource for held in mine for resource in held}:
            have = amount(where["status"]["allocatable"].get(resource, "0"))
            asked = sum(held.get(resource, Fraction(0)) for held in mine)
            if asked and asked + sum(held.get(resource, Fraction(0)) for held in running) > have:
                found.append((name, resource))
    return found


# ---------------------------------------------------------------------------- strategies

KEYS, VALUES = st.sampled_from(["zone", "pool", "cores"]), st.sampled_from(["a", "b", "8", "16", "-1"])
TAINTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gpu", "team"]),
        "value": st.sampled_from(["", "only", "x"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }
)
TOLERATIONS = st.one_of(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["gpu", "team"]), "operator": st.sampled_from(["Equal", "Exists"])},
        optional={"value": st.sampled_from(["", "only"]), "effect": st.sampled_from(["", "NoSchedule", "NoExecute"])},
    ),
    st.just({"operator": "Exists"}),
    st.just({"key": "gpu", "value": "only"}),
)


def _expression(operator: str) -> st.SearchStrategy[Object]:
    fixed: dict[str, Any] = {"key": KEYS, "operator": st.just(operator)}
    if operator in ("In", "NotIn"):
        fixed["values"] = st.lists(VALUES, min_size=1, max_size=2, unique=True)
    elif operator in ("Gt", "Lt"):
        fixed["values"] = st.lists(st.sampled_from(["8", "0", "x"]), min_size=1, max_size=1)
    return st.fixed_dictionaries(fixed)


EXPRESSIONS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]).flatmap(_expression)
FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(["n0", "n1"]), min_size=1, max_size=1),
    }
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
        "matchFields": st.lists(FIELDS, max_size=1),
    },
)


@st.composite
def nodes(draw: st.DrawFn, name: str = "n0") -> Object:
    cpu, memory = draw(st.sampled_from(["0", "1", "2", "3500m"])), draw(st.sampled_from(["1Gi", "3Gi", "4Gi"]))
    return node(
        name,
        {"cpu": cpu, "memory": memory, "pods": draw(st.sampled_from(["1", "3", "9"]))},
        draw(st.dictionaries(KEYS, VALUES, max_size=2)),
        draw(st.lists(TAINTS, max_size=2)),
        draw(st.sampled_from(["True", "True", "True", "False", "Unknown"])),
        draw(st.sampled_from([False, False, False, True])),
    )


REQUESTS = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["250m", "1", "1500m", "2"]), "memory": st.sampled_from(["512Mi", "1Gi", "2Gi"])}
)


@st.composite
def specs(draw: st.DrawFn) -> Object:
    """The spec of a pod of a gang, without rules half of the time."""
    spec: Object = {"containers": [{"name": "main", "resources": {"requests": draw(REQUESTS)}}]}
    if draw(st.booleans()):
        spec["tolerations"] = draw(st.lists(TOLERATIONS, max_size=2))
        spec["nodeSelector"] = draw(st.dictionaries(KEYS, VALUES, max_size=1))
        terms = draw(st.none() | st.lists(TERMS, min_size=1, max_size=2))
        if terms is not None:
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec["affinity"] = {"nodeAffinity": required}
    return spec


@st.composite
def clusters(draw: st.DrawFn, most: int = 3) -> tuple[list[Object], list[Object]]:
    """Up to three nodes, and up to four pods on them, a few of which have ended or would be back at once."""
    there = [draw(nodes(f"n{i}")) for i in range(draw(st.integers(1, most)))]
    pods = [
        pod(
            f"p{i}",
            draw(st.sampled_from([one["metadata"]["name"] for one in there])),
            draw(REQUESTS),
            draw(st.sampled_from(["Running", "Running", "Running", "Succeeded"])),
            owner=draw(st.sampled_from(["", "", "DaemonSet"])),
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    return there, pods
