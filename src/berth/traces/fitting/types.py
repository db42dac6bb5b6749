"""Job types of a trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Floats, Ints
from berth.traces.trace import Trace

__all__ = ["job_types"]


def job_types(sample: Trace, by: str, most: int) -> tuple[Callable[[Trace], Ints], list[str]]:
    """Define job types: return a function from jobs to type indices, and the types' names.

    Types are clusters of requests (`by` is "demand"), size classes ("size"), or the values of a column. There are at
    most `most`; rarer values of a column become one type, "other".
    """
    if by == "demand":
        return _clusters(sample, most)
    if by == "size":
        label = _size_labels
    else:
        if sample.jobs[by].null_count() == len(sample.jobs) and by != "needs":
            raise InvalidInput(f"a column that the trace has, not {by}", value=by, key="ports")

        def label(trace: Trace) -> pl.Series:
            return trace.jobs[by].fill_null("any" if by == "needs" else "none")

    counts = label(sample).value_counts(sort=True).sort(["count", label(sample).name], descending=[True, False])
    listed = [str(value) for value in counts[label(sample).name]]
    names = listed if len(listed) <= most else [*listed[: most - 1], "other"]
    number = {name: j for j, name in enumerate(names)}

    def type_of(trace: Trace) -> Ints:
        places = label(trace).replace_strict(number, default=len(names) - 1, return_dtype=pl.Int64)
        return places.to_numpy()

    return type_of, names


def _size_labels(trace: Trace) -> pl.Series:
    """Size classes in steps of four, of GPUs if there are some, else of the first resource."""
    resources = [resource.name for resource in trace.resources]
    column = "gpu" if "gpu" in resources else resources[0]
    size = (trace.jobs[column] * trace.jobs["pieces"]).to_numpy()
    top = 4.0 ** np.ceil(np.log(np.maximum(size, 1e-12)) / np.log(4.0) - 1e-9)
    names = [f"no {column}" if s <= 0 else f"up to {t:g} {column}" for s, t in zip(size, top, strict=True)]
    return pl.Series("size", names, dtype=pl.String)


def _points(trace: Trace, least: Floats) -> Floats:
    """Logarithms of requests and of pieces, (N, K + 1); a request of 0 lies well below the least."""
    names = [resource.name for resource in trace.resources]
    amounts = trace.jobs.select(names).to_numpy()
    pieces = trace.jobs["pieces"].to_numpy().astype(np.float64)
    points: Floats = np.column_stack([np.log(np.maximum(amounts, least)), np.log(pieces)])
    return points


def _clusters(sample: Trace, most: int) -> tuple[Callable[[Trace], Ints], list[str]]:
    """k-means, initialised with the most common request, then repeatedly the request farthest from all centres."""
    names = [resource.name for resource in sample.resources]
    amounts = sample.jobs.select(names).to_numpy()
    least = np.array([column[column > 0].min(initial=np.inf) for column in amounts.T])
    least = np.where(np.isfinite(least), least, 1.0) / 16.0
    points = _points(sample, least)
    rows, inverse, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    centres = rows[[int(counts.argmax())]]
    for _ in range(min(most, len(rows)) - 1):
        apart = ((rows[:, None, :] - centres[None]) ** 2).sum(axis=2).min(axis=1)
        centres = np.vstack([centres, rows[int((apart * counts).argmax())]])
    for _ in range(50):
        nearest = _nearest(rows, centres)
        moved = np.array(
            [
                np.average(rows[nearest == j], axis=0, weights=counts[nearest == j]) if (nearest == j).any() else c
                for j, c in enumerate(centres)
            ]
        )
        if np.allclose(moved, centres):
            break
        centres = moved
    del inverse
    size = np.bincount(_nearest(points, centres), minlength=len(centres))
    centres = centres[np.argsort(-size, kind="stable")]
    chosen = _nearest(points, centres)
    titles: list[str] = []
    for j in range(len(centres)):
        rows_of = chosen == j
        middle = np.median(amounts[rows_of], axis=0) if rows_of.any() else np.exp(centres[j, :-1])
        text = "-".join(f"{value:.3g}{name}" for value, name in zip(middle, names, strict=True) if value > 0)
        pieces = np.median(sample.jobs["pieces"].to_numpy()[rows_of]) if rows_of.any() else 1
        text = f"{pieces:.0f}x{text}" if pieces > 1 else text
        titles.append(text if text not in titles else f"{text}.{j}")
    return (lambda trace: _nearest(_points(trace, least), centres)), titles


def _nearest(points: Floats, centres: Floats) -> Ints:
    nearest: Ints = np.stack([((points - centre) ** 2).sum(axis=1) for centre in centres]).argmin(axis=0)
    return nearest
