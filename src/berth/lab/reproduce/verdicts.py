"""Whether what a paper claims was found: one rule for every claim, applied to numbers only.

An effect is the part by which one number is above another. It is taken seed by seed; its mean over seeds has a 95 %
interval. A claim with a printed number is

* **reproduced**, if the interval lies wholly on the paper's side of zero, and the printed number lies in the interval
  or no further than a quarter of itself from the mean;
* **direction only**, if the interval lies wholly on the paper's side of zero, but the number is another one;
* **not reproduced** otherwise: what the seeds cannot tell from no effect does not count.

Where the paper prints no number but says *more* or *less*, the interval on that side of zero is enough for
*reproduced*; *the same* is reproduced if the whole interval is within ± 5 %. An experiment is as good as the weakest of
its claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from berth.statistics import Estimate

__all__ = ["NEAR", "RULE", "SAME", "Verdict", "verdict_of", "weakest"]

NEAR = 0.25
"""How far from the printed number the mean may be, as a part of that number."""
SAME = 0.05
"""The largest effect that counts as none."""

RULE = (
    "An effect is the part by which one number is above another, taken seed by seed; its mean over seeds has a 95 % "
    "interval. A claim is reproduced if that interval lies wholly on the paper's side of zero and the number that the "
    f"paper prints is in it, or no further than {100 * NEAR:g} % of itself from the mean. It is “direction only” if "
    "the interval is on the paper's side of zero but the number is another one, and not reproduced otherwise: what the "
    "seeds cannot tell from no effect does not count. Where the paper prints no number, the side of zero is enough; "
    f"“the same” holds if the whole interval is within ± {100 * SAME:g} %. An experiment is as good as the weakest of "
    "its claims. The verdict is on the algorithm as printed, and on what it earned with decisions that can be played."
)


class Verdict(StrEnum):
    """What came of a claim, the best first."""

    reproduced = "reproduced"
    direction = "direction only"
    failed = "not reproduced"


def verdict_of(found: Estimate | None, value: float | None = None, direction: str | None = None) -> Verdict:
    """The verdict on one effect; `value` is what the paper prints, else `direction` is `more`, `less` or `same`.

    >>> verdict_of(Estimate(0.12, 0.10, 0.14, 8), value=0.1133).value
    'reproduced'
    >>> verdict_of(Estimate(0.30, 0.28, 0.32, 8), value=0.1133).value
    'direction only'
    >>> verdict_of(Estimate(0.12, -0.01, 0.25, 8), value=0.1133).value
    'not reproduced'
    """
    if found is None or found.low is None or found.high is None:
        return Verdict.failed
    if direction == "same":
        return Verdict.reproduced if max(-found.low, found.high) <= SAME else Verdict.failed
    upward = value > 0 if value is not None else direction == "more"
    if not (found.low > 0 if upward else found.high < 0):
        return Verdict.failed
    if value is None or found.low <= value <= found.high or abs(found.mean - value) <= NEAR * abs(value):
        return Verdict.reproduced
    return Verdict.direction


def weakest(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The worst of them; None where there is none.

    >>> weakest([Verdict.reproduced, Verdict.direction]).value
    'direction only'
    """
    order = list(Verdict)
    return max(verdicts, key=order.index, default=None)
