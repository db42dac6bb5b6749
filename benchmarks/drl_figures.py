"""Every gain that DRL-Greedy is to reach, measured: `python -m benchmarks.drl_figures`.

For each of the paper's set-ups it trains the rule of three numbers, a network, and a network that says only the order
(seeds of training and of comparison never meet), compares them with the paper's baselines and with the network that
comes with berth, and prints one table: what, the goal, what was measured over how many seeds, reached or not. What is
trained goes to `--out` and is not trained again. `--markdown FILE` writes the table as a documentation page.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.table import Figure, at_least, command, markdown, row, run, said, show
from berth.families.placement.training.train import TrainingPlan, train_on
from berth.registry import PolicySpec
from berth.statistics import paired

REVEALED = "revealed"
SHIPPED = "drl-greedy"
LITERAL = "greedy"


@dataclass(frozen=True)
class Work:
    """One set-up and its goals: the gain over literal greedy, in per cent, and the ratio to the bound."""

    title: str
    scenario: str
    order: float | None
    rule: float
    learned: float
    bound: float | None


WORKS = (
    Work("A: 100 servers, λ = 10", "drl-default", 0.4, 1.5, 1.8, 0.98),
    Work("A′: launches five times as dear", "drl-launch", None, 16.0, 17.0, None),
    Work("B: 10 servers, λ = 20", "drl-scarce", 3.0, 4.3, 5.2, 0.96),
    Work("C: 10 servers, λ = 30", "drl-scarce-30", 6.0, 20.0, 21.5, 0.92),
)
FAILURES = (
    ("100 servers", "drl-default", "drl-failures", 1.0),
    ("10 servers", "drl-scarce", "drl-scarce-failures", 3.0),
)
BASELINES = ("first-fit", "optra", "ossa", "hmao", "greedy:order=densest,waiting=queue")


@dataclass(frozen=True)
class Trained:
    """A policy that was trained, and how long that took."""

    policy: str
    line: str
    seconds: float


def trained(arguments: argparse.Namespace, scenario: str, method: str, steps: int, **more: Any) -> Trained:
    """Train, or take up what was trained before."""
    name = "-".join([scenario, method, *(str(value) for value in more.values())])
    plan = TrainingPlan((scenario,), method=method, steps=2 if arguments.quick else steps, **more)
    began = time.process_time()
    found = train_on(plan, {}, arguments.out / ("quick-" * arguments.quick + name))
    flags = "".join(
        f" --{key.replace('_', '-')}" + ("" if value is True else f" {value}") for key, value in more.items()
    )
    line = f"berth train {scenario} --method {method} --steps {plan.steps}{flags} --out {arguments.out / name}"
    seconds = found.history[-1][3] if found.history else time.process_time() - began
    return Trained(str(PolicySpec.parse(found.policy)), line, seconds)


def gains(work: Work, arguments: argparse.Namespace) -> Iterator[Figure]:
    """All policies on one set-up, against literal greedy, seed by seed."""
    rule = trained(arguments, work.scenario, "rule", 40)
    network = trained(arguments, work.scenario, "es", 300, patience=12)
    order = None
    if work.order is not None:
        more = {"only_order": True, "waiting": "commit-immediate"}
        order = trained(arguments, work.scenario, "es", 100, **more)
    policies = [LITERAL, *BASELINES, rule.policy, network.policy, SHIPPED]
    if order is not None:
        policies.append(order.policy)
    result = run(work.scenario, arguments.seeds, REVEALED, policies, {})
    line = command(work.scenario, arguments.seeds, REVEALED, policies)
    judged = {rule.policy: work.rule, network.policy: work.learned}
    titles = {rule.policy: f"rule of three numbers ({rule.policy})", network.policy: "network, trained for this"}
    if order is not None:
        judged[order.policy] = work.order or 0.0
        titles[order.policy] = "network, only the order, as the paper waits"
    titles[SHIPPED] = "the network that comes with berth"
    for policy in policies[1:]:
        found = row(result, REVEALED, policy)
        goal = judged.get(policy)
        reached = "–" if goal is None or arguments.quick else at_least(found.ratio, 1.0 + goal / 100.0)
        text = "–" if goal is None else f"≥ {goal:+g} % over literal greedy"
        yield Figure(f"{work.title}, {titles.get(policy, policy)}", line, text, said(found.ratio, change=True), reached)
    ratio = row(result, REVEALED, network.policy).fraction_of_oracle
    if work.bound is not None:
        reached = "–" if arguments.quick else at_least(ratio, work.bound)
        yield Figure(
            f"{work.title}, network against the clairvoyant bound", line, f"≥ {work.bound:g}", said(ratio), reached
        )
    for what, part in (("rule", rule), ("network", network), ("order only", order)):
        if part is not None:
            yield Figure(f"{work.title}, training of the {what}", part.line, "–", f"{part.seconds:.0f} s", "–")
    yield _distance(work.title, result, network.policy, line, arguments.quick)


def _distance(what: str, result: Any, specialist: str, line: str, quick: bool) -> Figure:
    """How far the network for everything stays behind the one for this, in points."""
    general, special = (row(result, REVEALED, policy).ratio for policy in (SHIPPED, specialist))
    points = 100.0 * (special.mean - general.mean) if general is not None and special is not None else float("nan")
    reached = "–" if quick else "yes" if points <= 1.0 else "no"
    title = f"{what}, points that berth's network stays behind"
    return Figure(title, line, "≤ 1 point", f"{points:+.2f} points", reached)


def failures(title: str, whole: str, lossy: str, goal: float, arguments: argparse.Namespace) -> Iterator[Figure]:
    """What is lost with a fifth of the servers, seed by seed, by the network that comes with berth."""
    totals = []
    for scenario in (whole, lossy):
        result = run(scenario, arguments.seeds, REVEALED, [SHIPPED], {})
        totals.append({seed: record.reward.sum() for seed, record in result.runs(REVEALED, SHIPPED).items()})
    lost = paired(totals[1], totals[0])
    line = command(lossy, arguments.seeds, REVEALED, [SHIPPED])
    reached = "–" if arguments.quick or lost is None else "yes" if lost.mean >= 1.0 - goal / 100.0 else "no"
    shown = said(lost, change=True)
    yield Figure(f"a fifth of the servers lost, {title}", line, f"≥ {-goal:g} % of gain", shown, reached)


def many_servers(arguments: argparse.Namespace) -> Iterator[Figure]:
    """A thousand servers, a hundred tasks a batch: the network that comes with berth beside one trained there."""
    network = trained(arguments, "drl-thousand", "es", 300, patience=12)
    policies = [LITERAL, SHIPPED, network.policy]
    result = run("drl-thousand", arguments.seeds, REVEALED, policies, {})
    line = command("drl-thousand", arguments.seeds, REVEALED, policies)
    for policy, title in (
        (SHIPPED, "the network that comes with berth"),
        (network.policy, "network, trained for this"),
    ):
        measured = said(row(result, REVEALED, policy).ratio, change=True)
        yield Figure(f"1000 servers, λ = 100, {title}", line, "–", measured, "–")
    yield _distance("1000 servers, λ = 100", result, network.policy, line, arguments.quick)


def as_printed(arguments: argparse.Namespace) -> Iterator[Figure]:
    """The paper's own DDPG, and its DRL that places directly, after 100 episodes."""
    for method, title in (("ddpg", "DDPG as printed, 100 episodes"), ("ddpg-direct", "direct DRL, 100 episodes")):
        found = trained(arguments, "drl-scarce", method, 25, patience=1000)
        result = run("drl-scarce", arguments.seeds, REVEALED, [LITERAL, found.policy], {})
        line = command("drl-scarce", arguments.seeds, REVEALED, [LITERAL, found.policy])
        measured = said(row(result, REVEALED, found.policy).ratio, change=True)
        yield Figure(f"B: 10 servers, λ = 20, {title}", f"{found.line}\n{line}", "–", measured, "–")


def page(found: list[Figure], arguments: argparse.Namespace) -> str:
    """The table as Markdown."""
    last = [
        "Gains are relative to literal greedy, which commits each task to a place on arrival, in the order of arrival.",
        "No schedule exceeds the clairvoyant bound, even one that knows all tasks before the first arrives.",
    ]
    return markdown("DRL-Greedy figures", "benchmarks.drl_figures", arguments, found, last)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two steps of training, for a look")
    parser.add_argument("--markdown", type=Path, help="write the table as a documentation page")
    parser.add_argument("--out", type=Path, default=Path("drl-figures"), help="where trained policies go")
    arguments = parser.parse_args()
    parts: list[Callable[[], Iterator[Figure]]] = [partial(gains, work, arguments) for work in WORKS]
    parts += [partial(failures, *failure, arguments) for failure in FAILURES]
    parts += [partial(many_servers, arguments), partial(as_printed, arguments)]
    show("DRL-Greedy", parts, arguments, lambda found: page(found, arguments))


if __name__ == "__main__":
    main()
