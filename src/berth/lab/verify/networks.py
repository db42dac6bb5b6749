"""RLScheduler's networks and its second synthetic log, from a clone of the authors' repository.

The networks are TensorFlow checkpoints. Their numbers lie in the data file in the order of the variables' names: four
scalars of Adam, then for each layer of the policy and of the critic the bias and the kernel, each followed by its two
moments. So no TensorFlow is needed to read them. Neither log nor networks come with berth: the repository has no
licence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.policies.priority import score_function
from berth.lab.verify.batch import NETWORKS, SCORES, mean_of_rule, where_of
from berth.lab.verify.environment import LUBLIN, SP2, Pick, environment_jobs, mean_of_picks, played, swf_fields
from berth.lab.verify.lines import Check, Line, Progress
from berth.model import Floats
from berth.random import stream

__all__ = ["REPOSITORY", "played", "read_network"]

CLONE = "deep-batch-scheduler"
LUBLIN_2 = f"{CLONE}/data/lublin_256_new2"
NUMBERS = 37_597
"""Numbers of a checkpoint: four scalars, and policy and critic with two moments each."""
LAYERS = ((8, 32), (32, 16), (16, 8), (8, 1))
VISIBLE = 128
"""The most waiting jobs that the network sees."""
LONGEST_WAIT = 43_200.0
NEARLY = 1.0 - 1e-5
DRAWS = 10
SAVED = {LUBLIN: "lublin256/lublin256_s0", SP2: "sdsc_sp2/sdsc_sp2_s4", LUBLIN_2: "Lublin256new/Lublin256new_s0"}
CAPACITY = {LUBLIN: 256, SP2: 128, LUBLIN_2: 256}
LUBLIN_2_RULES = {
    "none": {"FCFS": 7842.47, "WFP3": 9523.18, "UNICEP": 11265.31, "SJF": 787.89, "F1": 698.34},
    "shadow": {"FCFS": 247.61, "WFP3": 318.35, "UNICEP": 379.59, "SJF": 91.99, "F1": 148.25},
}
PRINTED = {**NETWORKS, LUBLIN_2: {"none": 724.51, "shadow": 118.79}}

Network = list[tuple[Floats, Floats]]


def _file(log: str) -> str:
    return f"{CLONE}/trained_models/bsld/{SAVED[log]}/simple_save/variables/variables.data-00000-of-00001"


def read_network(path: Path) -> Network:
    """Kernel and bias of each layer of the policy in a checkpoint."""
    numbers = np.fromfile(path, dtype="<f4")
    if len(numbers) != NUMBERS:
        raise InvalidInput(f"{NUMBERS} numbers of a checkpoint of RLScheduler", value=len(numbers), file=str(path))
    layers, at = [], 4
    for inputs, units in LAYERS:
        bias, at = numbers[at : at + units], at + 3 * units
        kernel, at = numbers[at : at + inputs * units].reshape(inputs, units), at + 3 * inputs * units
        layers.append((kernel, bias))
    return layers


def _seen(queue: list[int], size: Sequence[float], estimate: Sequence[float]) -> list[int]:
    """The jobs that the network sees: all, or alternately the shortest and the smallest of too many."""
    if len(queue) <= VISIBLE:
        return queue
    shortest = sorted(queue, key=lambda job: (estimate[job], job))
    smallest = sorted(queue, key=lambda job: (size[job], job))
    pairs = zip(shortest, smallest, strict=True)
    return list(dict.fromkeys(job for pair in pairs for job in pair))[:VISIBLE]


def _chooser(network: Network, scaled: Floats, jobs: Sequence[Floats], rng: np.random.Generator | None) -> Pick:
    """Draw a job by the network's probabilities; without `rng`, take the most probable one.

    `scaled` (N, 8): the inputs that do not change, with room for the wait (first) and for whether it fits (last).
    """
    submit, size, _, estimate = jobs
    lists = size.tolist(), estimate.tolist()

    def pick(queue: list[int], now: float, free: float, ended: list[int]) -> int:
        seen = _seen(queue, *lists)
        value = scaled[seen]
        value[:, 0] = np.minimum((now - submit[seen]) / LONGEST_WAIT, NEARLY)
        value[:, 7] = np.where(size[seen] <= free, NEARLY, 1e-5)
        value = value.astype(np.float32)
        for kernel, bias in network[:-1]:
            value = np.maximum(value @ kernel + bias, 0.0)
        score = (value @ network[-1][0] + network[-1][1])[:, 0]
        return seen[int(np.argmax(score if rng is None else score + rng.gumbel(size=len(score))))]

    return pick


def _scaled(path: Path, capacity: float) -> Floats:
    """The inputs of all jobs that the environment plays: shares of the largest in the log, 1 if unknown."""
    log = swf_fields(path)
    kept = np.flatnonzero(log["run"] != 0)
    _, size, _, estimate, _ = environment_jobs(path)
    columns = [
        np.zeros(len(kept)),
        np.minimum(estimate / log["run"].max(), NEARLY),
        np.minimum(size / capacity, NEARLY),
    ]
    for name in ("memory_requested", "user", "group", "application"):
        value = log[name][kept]
        columns.append(np.where(value == -1, 1.0, np.minimum(value / max(log[name].max(), 1.0), NEARLY)))
    return np.stack([*columns, np.zeros(len(kept))], axis=1)


def _by_rule(jobs: Sequence[Floats], rule: str) -> Callable[[int, slice], Pick]:
    """The waiting job with the least score is next; of equal ones the first."""
    score = score_function(SCORES[rule])

    def picker(_: int, one: slice) -> Pick:
        submit, size, _, estimate = (part[one].tolist() for part in jobs)
        return lambda queue, now, free, ended: min(
            queue, key=lambda job: (score(now - submit[job], estimate[job], size[job], submit[job]), job)
        )

    return picker


def _by_network(
    jobs: Sequence[Floats], network: Network, scaled: Floats, seed: int | None
) -> Callable[[int, slice], Pick]:
    """The network draws from a stream of the seed and the window; without a seed, its most probable job is next."""

    def picker(number: int, one: slice) -> Pick:
        rng = None if seed is None else stream(seed, "rlscheduler", number)
        return _chooser(network, scaled[one], [part[one] for part in jobs], rng)

    return picker


def _repository(folder: Path, progress: Progress) -> list[Line]:
    lines: list[Line] = []
    for log, capacity in CAPACITY.items():
        known = environment_jobs(folder / log)
        jobs, scaled, network = known[:4], _scaled(folder / log, capacity), read_network(folder / _file(log))
        for backfill, theirs in PRINTED[log].items():
            where = where_of(log, backfill)
            progress(where, len(lines), 23)
            for rule, printed in LUBLIN_2_RULES[backfill].items() if log == LUBLIN_2 else ():
                ours = mean_of_picks(jobs, capacity, backfill, _by_rule(jobs, rule))
                kernel = mean_of_rule(known, capacity, SCORES[rule], backfill)
                lines.append(Line(where, rule, printed, ours))
                if round(kernel, 2) != round(ours, 2):
                    lines.append(Line(where, rule, None, kernel, note="ends at one time in the order of arrival"))
            draws = [
                mean_of_picks(jobs, capacity, backfill, _by_network(jobs, network, scaled, seed))
                for seed in range(DRAWS)
            ]
            spread = float(np.std(draws, ddof=1))
            error, note = spread * math.sqrt(1.0 + 1.0 / DRAWS), f"mean of {DRAWS} draws, ± {spread:.2f} a draw"
            lines.append(Line(where, "RLScheduler's network", theirs, float(np.mean(draws)), 2, error, note))
            best = mean_of_picks(jobs, capacity, backfill, _by_network(jobs, network, scaled, None))
            lines.append(Line(where, "RLScheduler's network", None, best, note="always the most probable job"))
    return lines


REPOSITORY = Check(
    "RLScheduler's networks, and its second synthetic log",
    "Zhang et al., RLScheduler, SC 2020; the authors' repository, DIR-LAB/deep-batch-scheduler, `trained_models/bsld`",
    f"A clone of the repository lies in the folder of traces, as `{CLONE}`. Lublin-2 is its `lublin_256_new2`. The "
    "protocol is that above. The network sees at most 128 waiting jobs: wait, estimate, size, memory, user, group, "
    "program, and whether the job fits now. It draws the next job by its probabilities. The authors' draws have no "
    f"seed, so a printed number is one draw; the mean of {DRAWS} draws is compared with it.",
    (LUBLIN, SP2, LUBLIN_2, *(_file(log) for log in CAPACITY)),
    _repository,
    "**The order of ends**: of jobs that end at the same time, the environment releases first the one that comes first "
    "in its list, which backfilling sorts by estimated ends. berth's kernel takes them in the order of arrival. On "
    "Lublin-2 that changes one number, by 0.11.\n\n"
    "**Not computed**: the results on HPC2N, because the traces at hand have only the first 3,170 of its 527,371 jobs "
    "and the windows reach to the 9,874th; and the results for the networks that were trained for utilisation. The "
    "saved networks are evaluated; their training is not repeated.",
    optional=True,
)
