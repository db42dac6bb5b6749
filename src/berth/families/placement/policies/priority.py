"""Priority rules: the queue is in the order of a score that may change while jobs wait."""

from __future__ import annotations

from typing import Any

from berth.errors import InvalidInput
from berth.families.placement.policies.queue_rule import BACKFILL, SHADOW, QueueRule, score_function
from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem

__all__ = ["F1", "F2", "F3", "F4", "LJF", "SAF", "UNICEP", "WFP3", "Priority", "score_function"]

PICKS = ("again", "committed")


class Priority(InOrder):
    """Tasks start in the order of a score of your own, the least first; none passes the first in the queue.

    The score is computed from a task's `wait` and `estimate` in seconds, its `size` in processors (GPUs where the
    cluster has them), and its time of submission, `submit`.

    Settings: `score`, an expression such as `-wait/estimate`, or `module.function` with these four arguments; `fit` as
    in fcfs, and `backfill`, where `shadow` also is RLScheduler's backfilling; `pick` (`again`: the first is found anew
    at every moment; `committed`: it stays first until it starts); `ties`, the order of tasks with equal scores
    (`arrival`, `latest`, `shortest`, `longest`, `smallest` or `largest` first, and then by arrival).

    >>> from berth.testing import example_placement
    >>> Priority(example_placement(), score="estimate * size").pick
    'again'
    """

    reference = "the rule is yours"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: Any = None,
        *,
        score: str = "",
        backfill: str = "none",
        pick: str = "again",
        ties: str = "arrival",
        fit: str = "first",
    ) -> None:
        if pick not in PICKS:
            raise InvalidInput(f"one of {', '.join(PICKS)}", value=pick, key="pick")
        self.pick, self.ties = pick, ties
        committed = pick == "committed"
        self._follow(problem, QueueRule(str(score) or self.rule, backfill, fit, ties, committed), (*BACKFILL, SHADOW))


class LJF(Priority):
    """The longest estimate first."""

    reference, rule = "the opposite of sjf", "-estimate"


class SAF(Priority):
    """The smallest area, estimate times size, first."""

    reference, rule = "Carastan-Santos et al., CCGRID 2019", "estimate * size"


class WFP3(Priority):
    """Long waits relative to the estimate first, large jobs before small ones."""

    reference, rule = "Tang et al., CLUSTER 2009", "-((wait / estimate) ** 3) * size"


class UNICEP(Priority):
    """Long waits first, short and small jobs before others."""

    reference, rule = "Tang et al., CLUSTER 2009", "-wait / (log2(size) * estimate)"


class F1(Priority):
    """Small and short jobs first, and the earlier ones: the first of four learned rules."""

    reference = "Carastan-Santos and de Camargo, SC 2017"
    rule = "log10(estimate) * size + 870 * log10(submit)"


class F2(F1):
    """Small and short jobs first, and the earlier ones: the second of four learned rules."""

    rule = "sqrt(estimate) * size + 25600 * log10(submit)"


class F3(F1):
    """Small and short jobs first, and the earlier ones: the third of four learned rules."""

    rule = "estimate * size + 6860000 * log10(submit)"


class F4(F1):
    """Small and short jobs first, and the earlier ones: the fourth of four learned rules."""

    rule = "estimate * sqrt(size) + 530000 * log10(submit)"
