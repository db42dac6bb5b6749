"""Summary statistics of a workload from one pass over its tables: spreads, arrivals, work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from berth.model import Floats
from berth.traces.trace import Source

__all__ = ["DIGITS", "PERCENTILES", "Arrivals", "Spread"]

DIGITS = 4
"""Significant digits of a `Spread`: percentiles are exact to 0.05 %, whole numbers below 10,000 exactly."""

PERCENTILES = (5, 50, 95, 99)
DAY, HOUR = 86400.0, 3600.0


class Spread:
    """Counts of values rounded to `DIGITS` digits: at most 9,000 entries per power of ten.

    >>> spread = Spread()
    >>> spread.add(pl.Series([3.0, 1.0, 2.0, None, 1000000.0]))
    >>> spread.percentile(50), spread.percentile(99), spread.count, spread.mean
    (2.0, 1000000.0, 4, 250001.5)
    """

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.low, self.high = math.inf, -math.inf
        self._table = pl.DataFrame(schema={"value": pl.Float64, "count": pl.Int64})

    def add(self, values: pl.Series) -> None:
        """Add values; nulls are ignored."""
        found = values.drop_nulls().cast(pl.Float64).alias("value")
        if not len(found):
            return
        self.count += len(found)
        self.total += float(found.sum())
        self.low, self.high = min(self.low, float(found.min())), max(self.high, float(found.max()))  # type: ignore[arg-type]
        new = found.to_frame().select(pl.col("value").round_sig_figs(DIGITS), pl.lit(1, dtype=pl.Int64).alias("count"))
        self._table = pl.concat([self._table, new]).group_by("value").agg(pl.col("count").sum())

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def values(self) -> tuple[Floats, Floats]:
        """Sorted values, and the count of each."""
        table = self._table.sort("value")
        return table["value"].to_numpy(), table["count"].to_numpy().astype(float)

    def percentile(self, percent: float) -> float | None:
        """Smallest value that at least this percentage of all values do not exceed."""
        if not self.count:
            return None
        values, counts = self.values()
        place = int(np.searchsorted(np.cumsum(counts), percent / 100 * self.count * (1 - 1e-12)))
        return float(min(max(values[min(place, len(values) - 1)], self.low), self.high))

    def histogram(self, bins: int) -> tuple[Floats, Floats]:
        """(edges, counts) of this many bins, equal on a logarithmic scale; zeros count in the first."""
        values, counts = self.values()
        least = values[values > 0].min(initial=math.inf)
        if not math.isfinite(least):
            return np.array([0.0, 1.0]), np.array([counts.sum()])
        edges = np.geomspace(least, max(values[-1], least * 1.0001), bins + 1)
        place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
        return edges, np.bincount(place, counts, bins).astype(float)

    def as_dict(self) -> dict[str, Any]:
        """Count, mean, smallest, largest and percentiles, for JSON."""
        found = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        low, high = (self.low, self.high) if self.count else (None, None)
        return {"count": self.count, "mean": self.mean, "min": low, **found, "max": high}


class Arrivals:
    """Arrival times: 8 bytes per job, since inter-arrival times need them sorted.

    >>> arrivals = Arrivals(0.0)
    >>> arrivals.add(pl.Series([7200.0, 0.0, 3600.0]))
    >>> arrivals.jobs_per_hour, arrivals.cv2, arrivals.by_hour()[:4].tolist()
    (1.5, 0.0, [1.0, 1.0, 1.0, 0.0])
    """

    def __init__(self, clock_s: float) -> None:
        self.clock_s = clock_s
        self._parts: list[Floats] = []
        self._sorted = False

    def add(self, submits: pl.Series) -> None:
        """Add times; missing or negative ones are ignored."""
        self._parts.append(submits.filter(submits >= 0).to_numpy())
        self._sorted = False

    def times(self) -> Floats:
        """All times, sorted."""
        if len(self._parts) != 1 or not self._sorted:
            self._parts = [np.sort(np.concatenate([np.empty(0), *self._parts]))]
            self._sorted = True
        return self._parts[0]

    @property
    def first_s(self) -> float | None:
        return float(self.times()[0]) if len(self.times()) else None

    @property
    def last_s(self) -> float | None:
        return float(self.times()[-1]) if len(self.times()) else None

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        times = self.times()
        return float(times[-1] - times[0]) if len(times) else 0.0

    @property
    def jobs_per_hour(self) -> float | None:
        return len(self.times()) / self.span_s * HOUR if self.span_s > 0 else None

    @property
    def cv2(self) -> float | None:
        """Squared coefficient of variation of inter-arrival times: 1 for Poisson, more for bursts."""
        gaps = np.diff(self.times())
        return float(gaps.var() / gaps.mean() ** 2) if self.span_s > 0 else None

    def by_hour(self) -> Floats:
        """Arrivals in each hour of the day."""
        hours = np.floor_divide(np.mod(self.times() + self.clock_s, DAY), HOUR).astype(np.int64)
        return np.bincount(hours, minlength=24).astype(float)

    def over_time(self, bins: int) -> tuple[Floats, Floats]:
        """(edges, counts) of this many equal bins from the first to the last arrival."""
        times, span = self.times(), self.span_s or 1.0
        first = self.first_s or 0.0
        places = np.minimum((times - first) / span * bins, bins - 1).astype(np.int64)
        return first + span * np.arange(bins + 1) / bins, np.bincount(places, minlength=bins).astype(float)


def clock_offset(source: Source) -> float:
    """Seconds from the last local midnight to the trace's zero, if the log gives its date; else 0.

    >>> clock_offset(Source("swf", notes={"UnixStartTime": "86405", "TimeZone": "3600"}))
    3605.0
    """
    notes: Mapping[str, str] = source.notes
    try:
        return (float(notes["UnixStartTime"].split()[0]) + float(notes.get("TimeZone", "0").split()[0])) % DAY
    except (KeyError, ValueError, IndexError):
        return 0.0


def log_start(source: Source) -> float | None:
    """Seconds from 1970 to the trace's zero, if the log gives its date; local times count as UTC.

    >>> log_start(Source("swf", notes={"UnixStartTime": "893466664"})), log_start(Source("swf"))
    (893466664.0, None)
    """
    try:
        if "UnixStartTime" in source.notes:
            return float(source.notes["UnixStartTime"].split()[0])
        date = datetime.fromisoformat(source.notes["zero"].partition(",")[0])
    except (KeyError, ValueError, IndexError):
        return None
    return date.replace(tzinfo=UTC).timestamp()
