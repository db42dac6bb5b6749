"""Compare two workloads marginal by marginal: a fit and its trace, or the two halves of a trace.

Each marginal has two numbers. The Kolmogorov–Smirnov statistic is the largest difference of the two distribution
functions, 0 to 1. The Wasserstein distance is the mean distance of the two quantile functions, in natural logarithms:
0.1 means that values differ by about 10 %. The p-value of the first tests whether both samples come from one
distribution; with 100,000 jobs it rejects even negligible differences, so use the distance.

Estimates have one table more (`estimate_facts`): a distribution function does not show whether they are few round
values or thousands of odd ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Floats
from berth.traces.fitting.fit import fit, prepared
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import Workload
from berth.traces.trace import Trace

__all__ = [
    "Closeness",
    "Marginal",
    "closeness",
    "compared",
    "estimate_facts",
    "held_out",
    "marginals",
    "misfits",
    "plot_closeness",
]

FAR_KS, FAR_SHARE, FAR_RATIO = 0.05, 0.1, 2.0
"""A fit is poor beyond these: in a distribution function, a share of jobs, and the ratio of two amounts."""


@dataclass(frozen=True)
class Marginal:
    """One quantity of a workload: `sample` (N,); `logarithmic` if it is compared in logarithms."""

    name: str
    unit: str
    sample: Floats
    logarithmic: bool = True


@dataclass(frozen=True)
class Closeness:
    """One quantity of two workloads: the KS statistic, its p-value, and the Wasserstein distance.

    The distance is in natural logarithms if `logarithmic`, else in the quantity's own unit. p is None if draws are not
    independent, which makes it meaningless.
    """

    name: str
    unit: str
    ks: float
    p: float | None
    distance: float
    logarithmic: bool
    sizes: tuple[int, int]


def marginals(trace: Trace) -> list[Marginal]:
    """Quantities to compare: gaps, hours, run times, pieces, resources, estimates and their ratios, users' ranks."""
    jobs = prepared(trace).jobs
    submit, run = jobs["submit_s"].to_numpy(), jobs["run_s"].to_numpy()
    estimate = jobs["estimate_s"].fill_null(0.0).to_numpy()
    known = estimate > 0
    names = [resource for resource in trace.resources if resource.name in jobs.columns]
    found = [
        Marginal("gap between arrivals", "s", np.diff(submit)),
        Marginal("hour of the day", "h", submit / 3600.0 % 24.0, logarithmic=False),
        Marginal("run time", "s", run),
        Marginal("pieces", "", jobs["pieces"].to_numpy().astype(np.float64)),
        *(Marginal(r.name, r.unit, jobs[r.name].to_numpy()) for r in names),
        Marginal("estimate", "s", estimate[known]),
        Marginal("estimate over run time", "", estimate[known] / run[known]),
        Marginal("rank of the user", "", _ranks(jobs["user"])),
    ]
    return [marginal for marginal in found if len(marginal.sample)]


def _ranks(users: pl.Series) -> Floats:
    """Rank of each job's user: the number of users with at least as many jobs."""
    counts = users.drop_nulls().value_counts(sort=True)["count"].to_numpy()
    ranks: Floats = np.repeat(np.arange(1.0, len(counts) + 1), counts)
    return ranks


def _rounded(sample: Floats) -> Floats:
    """Round to nine digits: 0.47 and 470 / 1000 become one value instead of a step of the distribution function."""
    scale = 10.0 ** (8 - np.floor(np.log10(np.where(sample > 0, sample, 1.0))))
    rounded: Floats = np.rint(sample * scale) / scale
    return rounded


def closeness(real: Trace, generated: Trace) -> list[Closeness]:
    """Compare two workloads, marginal by marginal.

    >>> from berth.traces.fitting.workload import load_workload
    >>> workload = load_workload("nasa-ipsc")
    >>> one, other = (generate(workload, jobs=2000, seed=seed) for seed in (1, 2))
    >>> max(row.ks for row in closeness(one, other) if row.name == "run time") < 0.06
    True
    """
    from scipy.stats import ks_2samp, wasserstein_distance

    theirs = {marginal.name: marginal for marginal in marginals(generated)}
    rows = []
    for one in marginals(real):
        if one.name not in theirs:
            continue
        a, b = _rounded(one.sample), _rounded(theirs[one.name].sample)
        test = ks_2samp(a, b, method="asymp")
        if one.logarithmic:
            # 0 has a logarithm too: that of half the smallest other value
            positive = np.concatenate([a[a > 0], b[b > 0]])
            least = float(positive.min()) if len(positive) else 1.0
            a, b = (np.log(np.maximum(sample, least / 2)) for sample in (a, b))
        p = None if one.name in ("rank of the user", "hour of the day") else float(test.pvalue)
        rows.append(
            Closeness(
                one.name,
                one.unit,
                float(test.statistic),
                p,
                float(wasserstein_distance(a, b)),
                one.logarithmic,
                (len(a), len(b)),
            )
        )
    return rows


def estimate_facts(trace: Trace) -> dict[str, float] | None:
    """Facts about the estimates of a trace; None if it has none.

    >>> jobs = {"submit_s": [0.0] * 4, "run_s": [50.0] * 4, "estimate_s": [60.0, 60.0, 60.0, 40.0], "cpu": [1.0] * 4}
    >>> facts = estimate_facts(Trace.of({**jobs, "pieces": [1] * 4}))
    >>> facts["distinct_values"], facts["share_of_the_ten_most_common"], facts["largest_s"], facts["share_run_past"]
    (2, 1.0, 60.0, 0.25)
    """
    jobs = prepared(trace).jobs
    estimate = jobs["estimate_s"].fill_null(0.0).to_numpy()
    known = estimate > 0
    if not known.any():
        return None
    estimate, run = estimate[known], jobs["run_s"].to_numpy()[known]
    counts = np.unique(estimate, return_counts=True)[1]
    return {
        "distinct_values": len(counts),
        "share_of_the_ten_most_common": float(np.sort(counts)[-10:].sum() / len(estimate)),
        **{f"p{percent}_s": float(np.percentile(estimate, percent)) for percent in (25, 50, 75, 95, 99)},
        "largest_s": float(estimate.max()),
        "share_run_past": float((run > estimate).mean()),
        "mean_share_used": float(np.minimum(run / estimate, 1.0).mean()),
    }


def misfits(
    rows: Sequence[Closeness],
    halves: Sequence[Closeness],
    real: dict[str, float] | None,
    made: dict[str, float] | None,
) -> list[str]:
    """Reasons to distrust a fit: facts that are far apart, and marginals that are, even beside the trace's own halves.

    A KS statistic counts above FAR_KS and half that of the two halves of the trace.
    """
    own = {row.name: row.ks for row in halves}
    found = [
        f"{row.name}: KS {row.ks:.3f}" for row in rows if row.ks > FAR_KS and row.ks > 0.5 * own.get(row.name, 0.0)
    ]
    if (real is None) != (made is None):
        return [*found, f"estimates: {'the fit' if made is None else 'the trace'} has none"]
    for name, truth in (real or {}).items():
        other = (made or {})[name]
        apart = (
            abs(other - truth) > FAR_SHARE
            if "share" in name
            else max(other, truth) > FAR_RATIO * max(min(other, truth), 1e-12)
        )
        # a single job may have asked for any time: a fit stops at the largest that some jobs share
        if apart and not (name == "largest_s" and other < truth):
            found.append(
                f"{name.removesuffix('_s').replace('_', ' ')} of estimates: {other:.4g}, {truth:.4g} in the trace"
            )
    return found


def held_out(trace: Trace, seed: int = 0) -> tuple[list[Closeness], list[Closeness]]:
    """Fit the first half and compare with the second half; also compare the two halves with each other.

    The second result is the distance of the trace from itself: no generator that knows the first half alone can be
    expected to be much closer to the second.
    """
    whole = prepared(trace)
    half = len(whole) // 2
    if half < 2:
        raise InvalidInput("at least 4 jobs", value=len(whole), key="jobs")
    first, second = whole.replace(jobs=whole.jobs[:half]), whole.replace(jobs=whole.jobs[half:])
    made = generate(fit(first, "first half"), jobs=len(second), seed=seed)
    return closeness(second, made), closeness(second, first)


def compared(trace: Trace, workload: Workload, seed: int = 0, jobs: int | None = None) -> tuple[Trace, list[Closeness]]:
    """Generate as many jobs as the trace has (or `jobs`), and compare them with it."""
    made = generate(workload, jobs=len(prepared(trace).jobs) if jobs is None else jobs, seed=seed)
    return made, closeness(trace, made)


def plot_closeness(real: Trace, generated: Trace, path: str | Path, names: Sequence[str] = ("trace", "fit")) -> None:
    """Plot distribution functions of every marginal of both, side by side."""
    from matplotlib.figure import Figure

    ours, theirs = marginals(real), {marginal.name: marginal for marginal in marginals(generated)}
    shown = [marginal for marginal in ours if marginal.name in theirs]
    rows = -(-len(shown) // 3)
    figure = Figure(figsize=(11, 3.1 * rows), layout="constrained")
    for place, marginal in enumerate(shown):
        axes = figure.add_subplot(rows, 3, place + 1)
        for sample, label, style in (
            (marginal.sample, names[0], {"color": "#444444", "linewidth": 2.5}),
            (theirs[marginal.name].sample, names[1], {"color": "#d1495b", "linewidth": 1.2}),
        ):
            ordered = np.sort(sample)
            kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), 2000)).astype(np.int64))
            axes.step(ordered[kept], (kept + 1) / len(ordered), where="post", label=label, **style)  # type: ignore[arg-type]
        if marginal.logarithmic:
            positive = marginal.sample[marginal.sample > 0]
            axes.set_xscale("symlog", linthresh=float(positive.min()) if len(positive) else 1.0)
        axes.set_xlabel(f"{marginal.name} ({marginal.unit})" if marginal.unit else marginal.name)
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.3)
        if place % 3 == 0:
            axes.set_ylabel("share of jobs at or below")
        if place == 0:
            axes.legend(loc="lower right")
    figure.savefig(Path(path), dpi=120)
