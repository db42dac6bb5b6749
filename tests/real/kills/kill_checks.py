"""What must hold after kills, whatever was killed: compares the journal with what the witnesses saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Event, Failed, Finished, Submitted
from berth.live.core.records import ENDED, JobRecord
from berth.live.service.store import Store
from tests.harness.invariants import InvariantBroken
from tests.real.kills.killing import Task, Trial

__all__ = ["Journal", "check", "checked", "read_journal"]

Key = tuple[str, int]
Gangs = Mapping[Key, Sequence[Task]]


class Journal:
    """What the journal says of jobs and attempts."""

    def __init__(self, events: Iterable[Event]) -> None:
        replayed = Dispatcher()
        self.records: dict[str, JobRecord] = {}
        self.submitted: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """How often each job ended."""
        self.servers: dict[Key, set[str]] = {}
        """The servers of each attempt."""
        self.decided: dict[Key, float] = {}
        """When the start of each attempt was decided."""
        self.told: dict[Key, Finished | Failed] = {}
        """The first reported end of each attempt."""
        for event in events:
            if isinstance(event, Submitted):
                self.submitted[event.job.id] += 1
            elif isinstance(event, Decided):
                for start in event.starts:
                    key = start.job, start.attempt
                    self.servers[key] = {place.server for place in start.places}
                    self.decided[key] = event.time
            elif isinstance(event, Finished | Failed):
                self.told.setdefault((event.job, event.attempt), event)
            for record in replayed.note(event).changed:
                self.records[record.job.id] = record
                self.ends[record.job.id] += record.phase in ENDED


def read_journal(where: str) -> Journal:
    """The journal of a store."""
    store = Store(where)
    try:
        return Journal(event for _, event in store.events())
    finally:
        store.close()


def must(holds: object, otherwise: str) -> None:
    """An invariant of berth."""
    if not holds:
        raise InvariantBroken(otherwise)


def checked(trial: Trial, unseen: Callable[[Journal, Key], bool]) -> dict[str, object]:
    """Counts of a trial, after checking it."""
    journal = read_journal(str(trial.service.store))
    return {
        "kills": dict(Counter(kill.kind for kill in trial.kills)),
        "requests": trial.load.tries,
        **check(journal, trial.load.accepted, trial.tasks, unseen),
        "seconds": round(trial.seconds),
    }


def check(
    journal: Journal, asked: Mapping[str, int], tasks: Iterable[Task], unseen: Callable[[Journal, Key], bool]
) -> dict[str, int]:
    """Check that no job was lost, that none ran twice, and that gangs were whole or cut off; count what happened.

    `asked` has the number of tasks of each accepted job. A gang that came to its end may run again in one case: what
    watched over it was killed before it could report that. `unseen` says whether that was so.
    """
    gangs: defaultdict[Key, list[Task]] = defaultdict(list)
    for task in tasks:
        gangs[task.job, task.attempt].append(task)
    _check_journal(journal, asked)
    for key, some in gangs.items():
        ranks = Counter(task.rank for task in some)
        must(max(ranks.values()) == 1, f"{key} began twice: {some}")
        must(set(ranks) <= set(range(asked[key[0]])), f"{key} has more tasks than were asked for: {some}")
        must(not any(task.beside for task in some), f"two attempts ran at the same time: {some}")
        must(not any(task.runs for task in some), f"{key} still runs: {some}")
    whole = {key for key, some in gangs.items() if sum(task.ended is not None for task in some) == asked[key[0]]}
    finished = {key for key, told in journal.told.items() if isinstance(told, Finished)}
    must(finished <= whole, f"not whole, or not to its end: {[(key, gangs[key]) for key in finished - whole]}")
    for key, told in journal.told.items():
        if isinstance(told, Failed):
            assert told.fault != "job", f"{told}: {gangs[key]}"
    unknown = whole - finished
    for key in unknown:
        must(unseen(journal, key), f"ran to its end, and was to run again: {journal.told.get(key)}")
    _check_order(gangs)
    return {
        "jobs accepted": len(asked),
        "attempts": sum(record.attempt for record in journal.records.values()),
        "attempts begun": len(gangs),
        "cut off": len(gangs) - len(finished),
        "of them in parts": sum(len(some) < asked[key[0]] for key, some in gangs.items()),
        "ended unseen": len(unknown),
        "finished": len(finished),
    }


def _check_journal(journal: Journal, asked: Mapping[str, int]) -> None:
    must(set(asked) == set(journal.submitted), f"jobs lost or unknown: {sorted(set(asked) ^ set(journal.submitted))}")
    must(set(journal.submitted.values()) <= {1}, "a job was submitted twice")
    wrong = [record for record in journal.records.values() if record.phase != "finished"]
    must(not wrong, f"jobs that did not finish: {wrong[:3]}")
    must(set(journal.ends) == set(asked), "a job did not end")
    must(set(journal.ends.values()) <= {1}, "a job ended twice")


def _check_order(gangs: Gangs) -> None:
    """A task of an earlier attempt never begins after one of a later attempt."""
    for (job, attempt), tasks in gangs.items():
        later = [task for key, others in gangs.items() if key[0] == job and key[1] > attempt for task in others]
        if later:
            last, first = max(task.began for task in tasks), min(task.began for task in later)
            must(last < first, f"{job}: {tasks} {later}")
