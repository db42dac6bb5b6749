"""Rehearsals on simulated clusters, and the verdicts on the papers' claims (`berth reproduce --quick`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.frozen.interface import experiments, rehearsed, runners, verdicts
from tests.frozen.tables import Case, Key, Outcome

__all__ = ["rehearsals", "reproduced"]

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = [f"completion {part}".strip() for part in ("unlearned", "unpooled", "eager", "unmixed", "told", "")]
STREAM: dict[str, Any] = {
    "types": {"solver": {"a": 1.0, "b": 0.4, "c": 0.7}, "trainer": {"a": 0.4, "b": 1.0}, "render": {"b": 0.6, "c": 1}},
    "jobs": 90,
    "rate": "1.2/s",
    "work": "6s",
    "tasks": [1, 2, 3, 6],
    "luck": 0.2,
    "server_spread": 0.2,
}
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "stream": (
        "rehearse.yaml",
        {
            "policies": [
                *PARTS,
                "pack",
                "kubernetes",
                "best-fit",
                "easy",
                "easy alone",
                "fcfs alone",
                "completion by class",
            ]
        },
    ),
    "spread": ("rehearse.yaml", {"stream": STREAM, "policies": PARTS, "patience": "60s"}),
    "equal": ("rehearse-equal.yaml", {"policies": ["completion", "best-fit", "sjf"]}),
    "papers": ("rehearse-papers.yaml", {}),
    "ray": ("rehearse-ray.yaml", {}),
    "gavel": (
        "rehearse-gavel.yaml",
        {"measured": {"table": "gavel", "jobs": 150, "rate": "3/h"}, "policies": ["ray", "fgd alone", "completion"]},
    ),
    "trace": (
        "rehearse.yaml",
        {
            "stream": None,
            "trace": {"file": "batch.swf", "types": {"others": {"a": 1.0, "b": 0.5, "c": 0.8}}},
            "policies": ["completion", "easy", "ray"],
        },
    ),
}
"""A file of `examples/`, and what is changed in it."""


def rehearsals() -> Iterator[Case]:
    """Starts and ends of the jobs of each plan by scheduler and seed."""
    for name, (file, changes) in PLANS.items():
        changed = {"seeds": [9100, 9101], **changes}
        for runner in runners(EXAMPLES / file, changed):
            for seed in changed["seeds"]:
                yield Case(
                    Key(name, runner, f"seed {seed}"), partial(_rehearsed, EXAMPLES / file, changed, runner, seed)
                )


def _rehearsed(path: Path, changes: dict[str, Any], runner: str, seed: int) -> Outcome:
    made = rehearsed(path, changes, runner, seed)
    return Outcome(
        [" ".join(f"{number:.12g}" for number in row) for row in made],
        f"mean wait {sum(row[1] - row[0] for row in made) / len(made):.6g}, "
        f"mean turnaround {sum(row[2] - row[0] for row in made) / len(made):.6g}",
    )


def reproduced() -> Iterator[Case]:
    """Every experiment on synthetic data: means of all series by point, policy and seed, and the verdicts."""
    for name in experiments():
        if name == "drl-greedy/workloads":  # decides by last digits, which depend on the processor
            continue
        yield Case(Key(name, "verdicts", "quick"), partial(_judged, name))


def _judged(name: str) -> Outcome:
    lines, told = verdicts(name)
    return Outcome(lines, ", ".join(f"{told.count(word)} {word}" for word in sorted(set(told))))
