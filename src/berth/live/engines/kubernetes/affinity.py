"""Which nodes a pod may use: node selector, required node affinity, taints and tolerations.

Definitions follow the Kubernetes documentation ("Assigning Pods to Nodes", "Taints and Tolerations").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.live.engines.kubernetes.objects import Expression, PodSpec, Toleration

__all__ = ["REQUIRED", "Rules", "Taint", "expression_text", "here", "matches", "rules_of", "tolerates"]

WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
CONDITIONS = {
    "node.kubernetes.io/unschedulable": "cordoned",
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "unreachable",
    "node.kubernetes.io/disk-pressure": "short of disk space",
    "node.kubernetes.io/memory-pressure": "short of memory",
    "node.kubernetes.io/pid-pressure": "short of process ids",
    "node.kubernetes.io/network-unavailable": "without network",
}
"""Taints that Kubernetes sets by itself, in words."""
NODE_NAME = "metadata.name"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def here(server: str) -> dict[str, Any]:
    """The rule that pins a pod to a node."""
    return {"key": NODE_NAME, "operator": "In", "values": [server]}


@dataclass(frozen=True)
class Taint:
    """A taint that keeps pods away: its effect is NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"

    @property
    def condition(self) -> str:
        """The state of the node that Kubernetes expresses by the taint, in words; empty for a user's taint."""
        return CONDITIONS.get(self.key, "")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration matches a taint. The numeric operators Lt and Gt never match (they are not modelled).

    >>> tolerates(Toleration(key="gpu", operator="Exists"), Taint("gpu", "only", "NoSchedule"))
    True
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    same = toleration.operator in ("", "Equal") and toleration.value == taint.value
    return same and toleration.key == taint.key


def matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy an expression.

    `NotIn` and `DoesNotExist` match nodes without the label. `Gt` and `Lt` compare whole numbers, and never match a
    label that is none.

    >>> matches(Expression(key="zone", operator="NotIn", values=("a",)), {})
    True
    """
    has, value = expression.key in labels, labels.get(expression.key, "")
    match expression.operator:
        case "In":
            return has and value in expression.values
        case "NotIn":
            return not has or value not in expression.values
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case "Gt" | "Lt":
            bound = expression.values[0]
            if not has or not WHOLE.fullmatch(value) or not WHOLE.fullmatch(bound):
                return False
            return int(value) > int(bound) if expression.operator == "Gt" else int(value) < int(bound)


def expression_text(expression: Expression) -> str:
    """An expression in words.

    >>> expression_text(Expression(key="zone", operator="In", values=("a", "b")))
    'zone In (a, b)'
    """
    if expression.operator in ("Exists", "DoesNotExist"):
        return f"{expression.key} {expression.operator}"
    if expression.operator in ("Gt", "Lt"):
        return f"{expression.key} {expression.operator} {expression.values[0]}"
    return f"{expression.key} {expression.operator} ({', '.join(expression.values)})"


@dataclass(frozen=True)
class Rules:
    """Which nodes a pod may use: each rule of `selector` must hold, and all rules of one of `terms`, if there are any.

    Rules have their text, by which a change names them. Fields of a node are rules on its name.
    """

    selector: tuple[tuple[str, Expression], ...] = ()
    terms: tuple[tuple[tuple[str, Expression], ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The labels, and perhaps the field `metadata.name`, that the rules look at."""
        chosen = [*self.selector, *(rule for term in self.terms or () for rule in term)]
        return frozenset(expression.key for _, expression in chosen)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all rules, each once."""
        chosen = [*self.selector, *(rule for term in self.terms or () for rule in term)]
        return tuple(dict.fromkeys(text for text, _ in chosen))

    def untolerated(self, taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
        """The taints that keep the pod away."""
        return tuple(taint for taint in taints if not any(tolerates(one, taint) for one in self.tolerations))

    def unmatched(self, labels: Mapping[str, str], dropped: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """What labels (and the field `metadata.name`) lack, in words; rules whose texts are `dropped` do not count."""
        found = [
            f"no label {text}"
            for text, expression in self.selector
            if text not in dropped and not matches(expression, labels)
        ]
        if self.terms is not None and not any(_term_matches(term, labels, dropped) for term in self.terms):
            if len(self.terms) == 1 and self.terms[0]:
                wrong = [text for text, rule in self.terms[0] if text not in dropped and not matches(rule, labels)]
                found += [f"not {text}" for text in wrong]
            else:
                found.append(f"none of {len(self.terms)} node affinity terms matches")
        return tuple(found)


def _term_matches(term: tuple[tuple[str, Expression], ...], labels: Mapping[str, str], dropped: frozenset[str]) -> bool:
    """Whether all rules of a term match; a term that was empty from the start matches no node."""
    return bool(term) and all(text in dropped or matches(expression, labels) for text, expression in term)


def rules_of(spec: PodSpec) -> Rules:
    """The rules of a pod."""
    selector = [(f"{k}={v}", Expression(key=k, operator="In", values=(v,))) for k, v in spec.node_selector.items()]
    if spec.node_name:
        named = Expression(key=NODE_NAME, operator="In", values=(spec.node_name,))
        selector.append((f"nodeName={spec.node_name}", named))
    required = spec.affinity.node_affinity.required
    if required is None:
        return Rules(tuple(selector), None, spec.tolerations)
    terms = tuple(
        tuple((expression_text(rule), rule) for rule in (*term.match_expressions, *term.match_fields))
        for term in required.node_selector_terms
    )
    return Rules(tuple(selector), terms, spec.tolerations)
