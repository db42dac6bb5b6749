"""The picture of a training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["draw_curve"]


def draw_curve(history: Sequence[tuple[int, float, float, float]], path: Path) -> None:
    """Gain over greedy with a queue, in per cent, against steps: in training and in validation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    steps = [row[0] for row in history]
    axes.plot(steps, [100.0 * (row[1] - 1.0) for row in history], color="0.6", label="training, all that was tried")
    axes.plot(steps, [100.0 * (row[2] - 1.0) for row in history], marker="o", markersize=3, label="validation")
    axes.axhline(0.0, color="0.8", linewidth=0.8)
    axes.set_xlabel("step")
    axes.set_ylabel("gain over greedy with a queue, %")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
