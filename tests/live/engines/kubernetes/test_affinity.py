"""Which nodes a pod may use, beside a slow twin that reads plain objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.live.engines.kubernetes.affinity import Taint, matches, rules_of, tolerates
from berth.live.engines.kubernetes.fitting import may_use
from berth.live.engines.kubernetes.nodes import node_of
from berth.live.engines.kubernetes.objects import Expression, NodeObject, PodSpec, Toleration
from tests.live.engines.kubernetes.builders import (
    EXPRESSIONS,
    KEYS,
    TAINTS,
    TOLERATIONS,
    VALUES,
    node,
    nodes,
    plain_matches,
    plain_may_use,
    plain_tolerates,
    specs,
)


def may(spec: dict[str, Any], *there: dict[str, Any]) -> list[bool]:
    read = [node_of(NodeObject.model_validate(one)) for one in there]
    found: list[bool] = may_use(rules_of(PodSpec.model_validate(spec)), read).tolist()
    return found


@given(EXPRESSIONS, st.dictionaries(KEYS, VALUES, max_size=2))
def test_expressions_match_as_those_of_the_twin(expression: dict[str, Any], labels: dict[str, str]) -> None:
    assert matches(Expression.model_validate(expression), labels) == plain_matches(expression, labels)


@given(TOLERATIONS, TAINTS)
def test_tolerations_match_as_those_of_the_twin(toleration: dict[str, str], taint: dict[str, str]) -> None:
    assert tolerates(Toleration.model_validate(toleration), Taint(**taint)) == plain_tolerates(toleration, taint)


@given(specs(), nodes("n0"), nodes("n1"))
def test_matching_is_that_of_the_twin(spec: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> None:
    assert may(spec, one, other) == [plain_may_use(spec, one), plain_may_use(spec, other)]


def test_affinity_by_name_and_empty_terms() -> None:
    box = {"containers": [{"name": "main"}]}

    def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {**box, "affinity": {"nodeAffinity": required}}

    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert may(with_terms(named), node("n0"), node("n1")) == [False, True]
    assert may(with_terms({}), node("n0")) == [False]
    assert may(with_terms({}, named), node("n0"), node("n1")) == [False, True]
    assert may({**box, "nodeName": "n1"}, node("n0"), node("n1")) == [False, True]


def test_conditions_of_nodes() -> None:
    box: dict[str, Any] = {"containers": [{"name": "main"}]}
    there = node("n0", ready="False"), node("n1", ready="Unknown"), node("n2", cordoned=True), node("n3")
    assert may(box, *there) == [False, False, False, True]
    daemon = {**box, "tolerations": [{"operator": "Exists"}]}
    assert may(daemon, *there) == [True] * 4
    assert may({**box, "tolerations": None, "affinity": None}, node("n0")) == [True]
