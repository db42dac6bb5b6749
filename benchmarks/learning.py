"""How much of what could be earned each policy learns to earn: `python -m benchmarks.learning --out FOLDER`.

Every selection scenario, every policy that learns, on seeds that were not used to choose anything. Beside the oracle,
which knows the mean gains, stands the limit of information: a learner that is told what the gains were drawn from.
Finished cells are kept in the folder: the same command continues. `--markdown` prints the table for the documentation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from berth import __version__
from berth.lab.compare import compare
from berth.lab.run.results import Comparison
from berth.lab.show.tables import as_table
from berth.statistics import Estimate, paired

DEFAULT = "reservation"
OTHERS = ("epsilon-greedy", "escb", "escb-v", "cts", "kl-ucb", "cucb")
FORGETTING = ("epsilon-greedy:discount=0.998", "escb:discount=0.998", "escb-v:discount=0.998")
DRIFTING = ("esdp-drift", "esdp-walk")
SCENARIOS = (
    "esdp-default",
    "trace-openb-selection",
    "trace-google-2011-selection",
    "trace-itp-selection",
    "trace-alibaba-2018-selection",
    "gavel-selection",
    "esdp-drift",
    "esdp-rare-arrivals",
    "gang-30x40",
    "esdp-c8",
    "esdp-late-feedback",
    "esdp-dead-port",
    "esdp-walk",
    "esdp-small",
    "example-selection",
    "esdp-server-capacity",
    "esdp-t8000",
    "gang-100x40",
)
HEADS = ("scenario", DEFAULT, "best other", "its share", "ahead of it", "limit of information", "others")


def shares(result: Comparison) -> dict[str, dict[int, float]]:
    """What each policy, and the limit of information, earned of what the oracle did, by seed."""
    best = {seed: run.mean("reward") for seed, run in result.oracle("slot").items()}
    (information,) = result.information
    earned = {
        policy: {seed: run.mean("expected") for seed, run in result.runs(information, policy).items()}
        for policy in result.policies
    }
    earned["limit"] = {seed: run.mean("reward") for seed, run in result.oracle("information").items()}
    return {name: {s: v / best[s] for s, v in runs.items() if s in best} for name, runs in earned.items() if runs}


def line(scenario: str, result: Comparison) -> list[str]:
    """A row of the table; the best other policy is the one with the largest mean on these very seeds."""
    found = shares(result)
    limit = found.pop("limit", None)
    means = {name: sum(runs.values()) / len(runs) for name, runs in found.items() if name != DEFAULT}
    order = sorted(means, key=lambda name: means[name], reverse=True)
    ahead = paired(found[DEFAULT], found[order[0]], difference=True)
    return [
        f"{scenario} ({len(found[DEFAULT])})",
        said(paired(found[DEFAULT], dict.fromkeys(found[DEFAULT], 1.0))),
        order[0],
        f"{means[order[0]]:.3f}",
        said(ahead, sign=True),
        "not known: gains drift" if limit is None else said(paired(limit, dict.fromkeys(limit, 1.0))),
        ", ".join(f"{name} {means[name]:.3f}" for name in order[1:]),
    ]


def said(value: Estimate | None, sign: bool = False) -> str:
    """A share, or a difference of shares, with half of its interval."""
    if value is None:
        return "–"
    return f"{value.mean:{'+' if sign else ''}.3f}" + ("" if value.half is None else f" ± {value.half:.3f}")


def rows(given: argparse.Namespace, seeds: range, console: Console) -> list[list[str]]:
    """Compare, and tell each row as soon as it is known."""
    lines = []
    for scenario in given.scenario or SCENARIOS:
        policies = [DEFAULT, *(given.policy or OTHERS), *(FORGETTING if scenario in DRIFTING else ())]
        oracles = ["slot"] if scenario in DRIFTING else ["slot", "information"]
        folder = None if given.out is None else given.out / scenario
        result = compare(scenario, policies, list(seeds), DEFAULT, oracles=oracles, out=folder, workers=given.workers)
        if result.failed:
            raise SystemExit(f"{scenario}: {next(iter(result.failed.values())).error}")
        lines.append(line(scenario, result))
        console.print("  ".join(lines[-1]), highlight=False)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one (repeat)")
    parser.add_argument("--policy", action="append", help="beside the default learner only this one (repeat)")
    parser.add_argument("--seeds", type=int, default=30, help="how many")
    parser.add_argument("--first", type=int, default=9000, help="the first of them")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="folder of finished cells")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    given = parser.parse_args()
    console = Console(width=None if not given.markdown else 400)
    seeds = range(given.first, given.first + given.seeds)
    lines = rows(given, seeds, console)
    title = f"share of the oracle, berth {__version__}, seeds {seeds.start} to {seeds.stop - 1}"
    if not given.markdown:
        console.print(as_table(HEADS, lines, len(HEADS), title=title))
        return
    for cells in (HEADS, ["---"] * len(HEADS), *lines):
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
