"""Result of a comparison: the numbers of every cell, and a summary of each policy.

Information settings are never mixed: a policy that sees the arrivals before it decides is compared only with policies
that see them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from berth.about import VERSION
from berth.families import FAMILIES
from berth.families.lab import LabFamily
from berth.lab.run.cells import HIDDEN, Cell, CellResult
from berth.lab.run.runner import Failure
from berth.model import Floats
from berth.regret import cumulative_regret, growth_exponent, log_fit
from berth.statistics import Estimate, estimate, paired

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Comparison", "OracleRow", "Row", "Unsupported", "spoken"]


NO_REGRET = 1e-4  # share of the oracle's reward; the growth of a smaller regret is meaningless


def spoken(information: str) -> str:
    """Name of an information setting."""
    return "Arrivals hidden until the decision" if information == HIDDEN else "Arrivals revealed before the decision"


@dataclass(frozen=True)
class Unsupported:
    """A policy that cannot serve a setting, and why: listed, not failed.

    An oracle that cannot serve the scenario is listed with `information` "oracle".
    """

    information: str
    policy: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One policy in one setting, over all its seeds. Estimates that do not apply are None.

    `reward` is the mean per slot; `ratio` and `difference` are against the baseline, seed by seed.
    `fraction_of_stationary` and `fraction_of_oracle` compare with y* and with the optimum of each slot,
    `fraction_of_information` with a learner that knows the distribution of the gains. `regret_stationary` and `regret`,
    against the first two, are totals at the end; their growth is the exponent of the mean curve. `violations` counts
    broken constraints over all seeds, `violating_slots` is the share of slots with any. `claimed` and `claimed_ratio`,
    present only with violations, are what infeasible decisions would have earned unchecked: never a reward.

    If the family also measures the mean reward of a decision, without noise, `expected` is that mean per slot, and
    fractions and regrets use it. `regret_log_fit` is the R² of the mean regret curve against ln T. `overhead` or `cost`
    is what was subtracted from `gain`.
    """

    information: str
    policy: str
    seeds: tuple[int, ...]
    reward: Estimate | None
    ratio: Estimate | None
    difference: Estimate | None
    fraction_of_stationary: Estimate | None
    fraction_of_oracle: Estimate | None
    regret_stationary: Estimate | None
    regret: Estimate | None
    regret_stationary_growth: float | None
    regret_growth: float | None
    violations: int
    violating_slots: float
    claimed: Estimate | None
    claimed_ratio: Estimate | None
    gain: Estimate | None
    overhead: Estimate | None
    decide_microseconds: float
    expected: Estimate | None = None
    cost: Estimate | None = None
    regret_log_fit: float | None = None
    fraction_of_information: Estimate | None = None

    def as_dict(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The row as a dictionary for JSON: an estimate becomes {mean, low, high, seeds} or null."""
        return {
            name: value.as_dict() if isinstance(value, Estimate) else list(value) if name == "seeds" else value
            for name, value in vars(self).items()
            if name not in without
        }

    def flat(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The row for a table file: an estimate becomes three columns."""
        columns: dict[str, Any] = {}
        for name, kind in self.__annotations__.items():
            if name in without:
                continue
            value = getattr(self, name)
            if name == "seeds":
                columns["seeds"] = len(value)
            elif "Estimate" in str(kind):
                columns[name] = None if value is None else value.mean
                columns[f"{name}_low"] = None if value is None else value.low
                columns[f"{name}_high"] = None if value is None else value.high
            else:
                columns[name] = value
        return columns


@dataclass(frozen=True)
class OracleRow:
    """An oracle over all seeds: its mean reward per slot, and the largest gap to a certified bound.

    `fraction_of_oracle` is the share of each slot's optimum that a learning oracle earns.
    """

    oracle: str
    reward: Estimate | None
    gap: float | None
    fraction_of_oracle: Estimate | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as a dictionary, for JSON."""
        share = {} if self.fraction_of_oracle is None else {"fraction_of_oracle": self.fraction_of_oracle.as_dict()}
        return {"oracle": self.oracle, "reward": self.reward and self.reward.as_dict(), "gap": self.gap, **share}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of `berth.compare`.

    `records` holds every finished cell, `failed` the others; `unsupported` lists policies that cannot serve a setting.
    `settings` is the scenario as it was run, `command` repeats the comparison, `ports` holds names.
    `remarks` say why the scenario may tell policies badly apart.
    """

    settings: Mapping[str, Any]
    policies: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    information: tuple[str, ...]
    oracles: tuple[str, ...]
    ports: tuple[str, ...]
    servers: int
    records: Mapping[Cell, CellResult]
    failed: Mapping[Cell, Failure]
    unsupported: tuple[Unsupported, ...]
    reused: int
    seconds: float
    started: str
    finished: str
    command: str
    versions: Mapping[str, str]
    out: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def family(self) -> LabFamily:
        """Interface of the scenario's family."""
        return FAMILIES[str(self.settings.get("family", "allocation"))].lab

    @property
    def failures(self) -> dict[str, Failure]:
        """Failures by cell; cells of a policy that failed alike are one entry."""
        alike: dict[tuple[str, str], list[Cell]] = {}
        for cell, failure in self.failed.items():
            alike.setdefault((cell.name, failure.error), []).append(cell)
        return {
            str(cells[0]) + (f" and {len(cells) - 1} more" if len(cells) > 1 else ""): self.failed[cells[0]]
            for cells in alike.values()
        }

    @property
    def regretted(self) -> tuple[str, ...]:
        """Oracles against which regret is defined slot by slot."""
        if "regret" in self.family.left_out:
            return ()
        return tuple(name for name in self.oracles if name not in self.family.learners)

    def runs(self, information: str, policy: str) -> dict[int, CellResult]:
        """Finished cells of one policy in one setting, by seed."""
        found = ((seed, self.records.get(Cell(policy, seed, information))) for seed in self.seeds)
        return {seed: record for seed, record in found if record is not None}

    def oracle(self, name: str) -> dict[int, CellResult]:
        """Finished cells of one oracle, by seed."""
        found = ((seed, self.records.get(Cell(name, seed))) for seed in self.seeds)
        return {seed: record for seed, record in found if record is not None}

    def served(self, information: str) -> list[str]:
        """Policies with at least one finished cell in this setting."""
        return [policy for policy in self.policies if self.runs(information, policy)]

    def alike(self, information: str) -> list[list[str]]:
        """Groups of policies that earned the same in every slot under every seed of this setting."""
        groups: list[list[str]] = []
        for policy in self.served(information):
            for group in groups:
                if _same_rewards(self.runs(information, policy), self.runs(information, group[0])):
                    group.append(policy)
                    break
            else:
                groups.append([policy])
        return [group for group in groups if len(group) > 1]

    @property
    def indifferent(self) -> bool:
        """Whether every policy that ran in several information settings earned the same in all of them."""
        first, *others = self.information
        both = [(other, p) for other in others for p in self.served(other) if p in self.served(first)]
        return bool(both) and all(_same_rewards(self.runs(first, p), self.runs(other, p)) for other, p in both)

    def regret(self, information: str, policy: str, oracle: str) -> Floats:
        """Cumulative regret curves against an oracle, (S, T), one for each seed that has both."""
        runs, best = self.runs(information, policy), self.oracle(oracle)
        seeds = sorted(runs.keys() & best.keys())
        if not seeds:
            return np.zeros((0, 0))
        earned = np.array([runs[s].series[self.family.measured_in] for s in seeds])
        return cumulative_regret(earned, np.array([best[s].reward for s in seeds]))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each setting and policy that has finished cells, the best reward first."""
        rows: list[Row] = []
        for information in self.information:
            served = [self._row(information, policy) for policy in self.served(information)]
            rows.extend(sorted(served, key=lambda r: -math.inf if r.reward is None else r.reward.mean, reverse=True))
        return tuple(rows)

    @cached_property
    def oracle_rows(self) -> tuple[OracleRow, ...]:
        """One row for each oracle."""
        rows = []
        for name in self.oracles:
            runs = self.oracle(name).values()
            gaps = [float(run.bound / run.reward.sum() - 1.0) for run in runs if run.reward.sum() > 0]
            gap = max(gaps) if gaps and math.isfinite(max(gaps)) else None
            share = None
            if name in self.family.learners:
                learned, best = ({s: r.mean("reward") for s, r in self.oracle(n).items()} for n in (name, "slot"))
                share = paired(learned, best)
            rows.append(OracleRow(name, estimate(run.mean("reward") for run in runs), gap, share))
        return tuple(rows)

    def _earned(self, oracle: str) -> float:
        """Reward of an oracle in a whole run, averaged over seeds."""
        totals = [float(record.reward.sum()) for record in self.oracle(oracle).values()]
        return sum(totals) / len(totals) if totals else 0.0

    def _row(self, information: str, policy: str) -> Row:
        runs = self.runs(information, policy)
        reward = {seed: run.mean("reward") for seed, run in runs.items()}
        base = {seed: run.mean("reward") for seed, run in self.runs(information, self.baseline).items()}
        family = self.family
        measured = {seed: run.mean(family.measured_in) for seed, run in runs.items()}
        best = {
            name: {s: run.mean("reward") for s, run in self.oracle(name).items()}
            for name in ("stationary", "slot", "information")
        }

        def mean(name: str) -> Estimate | None:
            return estimate(run.mean(name) for run in runs.values() if name in run.series)

        curves = {name: self.regret(information, policy, name) for name in ("stationary", "slot")}
        broken = {seed: int(run.series["violations"].sum()) for seed, run in runs.items()}
        claimed = {seed: run.mean("claimed") for seed, run in runs.items()} if any(broken.values()) else {}
        return Row(
            information=information,
            policy=policy,
            seeds=tuple(runs),
            reward=estimate(reward.values()),
            ratio=paired(reward, base),
            difference=paired(reward, base, difference=True),
            fraction_of_stationary=paired(measured, best["stationary"]),
            fraction_of_oracle=paired(measured, best["slot"]),
            regret_stationary=estimate(curves["stationary"][:, -1:].ravel()),
            regret=estimate(curves["slot"][:, -1:].ravel()),
            regret_stationary_growth=_of_mean(growth_exponent, curves["stationary"], self._earned("stationary")),
            regret_growth=_of_mean(growth_exponent, curves["slot"], self._earned("slot")),
            violations=sum(broken.values()),
            violating_slots=float(np.mean([(run.series["violations"] > 0).mean() for run in runs.values()])),
            claimed=estimate(claimed.values()),
            claimed_ratio=paired(claimed, base),
            gain=mean("gain"),
            overhead=mean("overhead"),
            decide_microseconds=float(np.median(np.concatenate([r.series["decide_seconds"] for r in runs.values()])))
            * 1e6,
            expected=mean("expected"),
            cost=mean("cost"),
            regret_log_fit=_of_mean(log_fit, curves["slot"], self._earned("slot")),
            fraction_of_information=paired(measured, best["information"]),
        )

    def as_dict(self) -> dict[str, Any]:
        """The comparison without its slots, as a dictionary for JSON; contains no NaN."""
        settings = self.settings
        return {
            "scenario": {key: settings.get(key) for key in ("name", "title", "description", "family", "horizon")},
            "settings": dict(settings),
            "policies": list(self.policies),
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "arrivals": list(self.information),
            "summary": [row.as_dict(self.family.left_out) for row in self.rows],
            "oracles": [row.as_dict() for row in self.oracle_rows],
            "unsupported": [vars(item) for item in self.unsupported],
            "remarks": list(self.remarks),
            "failed": [
                {"name": c.name, "seed": c.seed, "arrivals": c.information, "error": f.error}
                for c, f in self.failed.items()
            ],
            "cells": {
                "computed": len(self.records) - self.reused,
                "reused": self.reused,
                "failed": len(self.failed),
            },
            "seconds": round(self.seconds, 3),
            "started": self.started,
            "finished": self.finished,
            "command": self.command,
            "versions": dict(self.versions),
            "out": self.out,
        }

    def frame(self) -> pl.DataFrame:
        """`rows` as a table, one column per number: an estimate has three, such as difference, _low and _high."""
        import polars as pl

        rows = [row.flat(self.family.left_out) for row in self.rows]
        plain = {"information": pl.String, "policy": pl.String, "seeds": pl.Int64, "violations": pl.Int64}
        return pl.DataFrame(rows, {name: plain.get(name, pl.Float64) for name in rows[0]} if rows else None)

    def slots_frame(self) -> pl.DataFrame:
        """Every slot of every cell: information, policy, seed, slot, its numbers, and the oracles' rewards."""
        import polars as pl

        best = {name: self.oracle(name) for name in self.oracles}
        frames = []
        for information in self.information:
            for policy in self.policies:
                for seed, run in self.runs(information, policy).items():
                    count = len(run.reward)
                    nothing = np.full(count, np.nan)
                    frame = pl.DataFrame(
                        {
                            "slot": np.arange(count),
                            **run.series,
                            **{f"oracle_{n}": b[seed].reward if seed in b else nothing for n, b in best.items()},
                        }
                    )
                    where = {"information": information, "policy": policy, "seed": seed}
                    frames.append(
                        frame.select(
                            *(pl.lit(value).alias(name) for name, value in where.items()),
                            pl.all().exclude("violations").fill_nan(None),
                            pl.col("violations").cast(pl.Int64),
                        )
                    )
        return pl.concat(frames) if frames else pl.DataFrame()

    @property
    def version(self) -> str:
        """Version of berth that ran the comparison."""
        return self.versions.get("berth", VERSION)


def _same_rewards(some: Mapping[int, CellResult], others: Mapping[int, CellResult]) -> bool:
    return some.keys() == others.keys() and all(
        np.allclose(run.reward, others[seed].reward, rtol=1e-9, atol=0.0) for seed, run in some.items()
    )


def _of_mean(measure: Callable[[Floats], float], curves: Floats, earned: float) -> float | None:
    """A measure of the mean of curves (S, T); None if the regret is below the oracle's precision."""
    if not curves.size or abs(curves[:, -1].mean()) < NO_REGRET * abs(earned):
        return None
    found = measure(curves.mean(axis=0))
    return found if math.isfinite(found) else None
