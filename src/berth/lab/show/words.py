"""Numbers and findings in words, the same in the terminal and in the report."""

from __future__ import annotations

from berth.lab.run.cells import HIDDEN
from berth.lab.run.results import Comparison, Row, Unsupported
from berth.statistics import Estimate

__all__ = ["MISSING", "in_words", "mean_of", "needs", "number", "percent", "plus_minus", "setting", "verdict"]

MISSING = "–"


def number(value: float | None, digits: int = 4) -> str:
    """A number with about `digits` significant digits.

    >>> number(1234.5678), number(0.98765), number(None)
    ('1,235', '0.9877', '–')
    """
    if value is None:
        return MISSING
    if value and abs(value) < 1e-3:
        return f"{value:.{digits - 1}g}".replace("-", "−")
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}".replace("-", "−")


def percent(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """A share as a percentage.

    >>> percent(0.0937, sign=True), percent(0.98765)
    ('+9.4 %', '98.8 %')
    """
    if value is None:
        return MISSING
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def plus_minus(value: Estimate | None, digits: int = 4) -> tuple[str, str]:
    """The mean, and ± half its interval (empty with one seed).

    >>> plus_minus(Estimate(2.0, 1.5, 2.5, 4))
    ('2.000', '± 0.500')
    """
    if value is None:
        return MISSING, ""
    mean = number(value.mean, digits)
    if value.half is None:
        return mean, ""
    decimals = len(mean.partition(".")[2]) if "e" not in mean else 0
    half = f"{value.half:,.{decimals}f}" if "e" not in mean else f"{value.half:.1g}"
    return mean, f"± {half}"


def in_words(value: Estimate | None) -> str:
    """The mean and ± half its interval in one text."""
    return " ".join(plus_minus(value)).strip()


def mean_of(value: Estimate | None) -> float | None:
    """The mean of an estimate, where there is one."""
    return None if value is None else value.mean


def needs(item: Unsupported) -> str:
    """Why a policy is not in a setting, beginning with its name once."""
    return item.reason if item.reason.startswith(item.policy) else f"{item.policy}: {item.reason}"


def setting(information: str) -> str:
    """An information setting, to go on with in a sentence."""
    return "With arrivals hidden" if information == HIDDEN else "With arrivals revealed"


def _against(row: Row, baseline: str) -> str:
    ratio = row.ratio
    if ratio is None:
        return ""
    gain = percent(ratio.mean - 1, sign=True)
    if ratio.low is None or ratio.high is None:
        return f", {gain} against {baseline} (one seed: no interval)"
    span = f"95 % interval {percent(ratio.low - 1, sign=True)} to {percent(ratio.high - 1, sign=True)}"
    unsure = "" if ratio.low > 1 or ratio.high < 1 else "; not told apart by these seeds"
    return f", {gain} against {baseline} ({span}{unsure})"


def verdict(comparison: Comparison) -> list[str]:
    """What came out, in a few sentences: the best policy of each setting, and what was not real."""
    said: list[str] = []
    for information in comparison.information:
        rows = [row for row in comparison.rows if row.information == information and row.reward is not None]
        if not rows:
            said.append(f"{setting(information)}, no policy finished.")
            continue
        best = rows[0]
        reward = f"{number(mean_of(best.reward))} a slot"
        if comparison.family.logarithmic and best.fraction_of_oracle is not None:
            reward += f", {percent(best.fraction_of_oracle.mean)} of the oracle"
        if best.policy != comparison.baseline:
            said.append(
                f"{setting(information)}, {best.policy} earns most: {reward}{_against(best, comparison.baseline)}."
            )
            continue
        second = (
            f", ahead of {rows[1].policy} ({percent(rows[1].ratio.mean - 1, sign=True)})"
            if (len(rows) > 1 and rows[1].ratio)
            else ""
        )
        said.append(f"{setting(information)}, the baseline {best.policy} earns most: {reward}{second}.")
    said.extend(_broken(comparison))
    said.extend(_alike(comparison))
    said.extend(comparison.remarks)
    if comparison.failed:
        said.append(f"{len(comparison.failed)} cells failed and are missing from all numbers.")
    return said


def _alike(comparison: Comparison) -> list[str]:
    """Policies, and information settings, between which the rewards show no difference."""
    groups = {information: comparison.alike(information) for information in comparison.information}
    same = len({str(found) for found in groups.values()}) == 1
    said = [
        f"{'' if same else setting(information) + ', '}{', '.join(group[:-1])} and {group[-1]} earned the same in "
        "every slot: this scenario does not tell them apart."
        for information, found in list(groups.items())[: 1 if same else None]
        for group in found
    ]
    if comparison.indifferent:
        said.append("Every policy earned the same with arrivals hidden and revealed: seeing them makes no difference.")
    return said


def _broken(comparison: Comparison) -> list[str]:
    broken: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.violations and row.reward and row.claimed:
            broken.setdefault(row.policy, []).append(row)
    if not broken:
        return ["No decision broke a constraint."]
    said: list[str] = []
    for policy, rows in broken.items():
        # a policy that makes nothing of the arrivals does the same in both settings: say it once
        same = len({(number(mean_of(row.claimed)), percent(row.violating_slots)) for row in rows}) == 1
        said.extend(
            f"{'In both settings' if same and len(rows) > 1 else setting(row.information)}, decisions of {policy} broke"
            f" constraints in {percent(row.violating_slots)} of the slots and were made feasible before they counted:"
            f" unchecked it would have claimed {number(mean_of(row.claimed))} a slot,"
            f" it earned {number(mean_of(row.reward))}."
            for row in (rows[:1] if same else rows)
        )
    return said
