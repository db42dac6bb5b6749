"""What must be so after kills, whatever was killed: compares what is on paper with what the witnesses saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Failed, Finished, Submitted
from berth.live.core.records import ENDED, JobRecord
from berth.live.service.store import Store
from tests.live.engines.killing import Task, Trial

__all__ = ["Paper", "checked"]

Key = tuple[str, int]


class Paper:
    """What the journal says."""

    def __init__(self, where: str) -> None:
        store, replayed = Store(where), Dispatcher()
        self.records: dict[str, JobRecord] = {}
        self.submitted: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """How often each job ended."""
        self.servers: dict[Key, set[str]] = {}
        """Where each attempt was to run."""
        self.told: dict[Key, Finished | Failed] = {}
        """The first that was told of the end of each attempt."""
        try:
            for _, event in store.events():
                if isinstance(event, Submitted):
                    self.submitted[event.job.id] += 1
                elif isinstance(event, Decided):
                    places = {(start.job, start.attempt): start.places for start in event.starts}
                    self.servers.update({key: {one.server for one in many} for key, many in places.items()})
                elif isinstance(event, Finished | Failed):
                    self.told.setdefault((event.job, event.attempt), event)
                for record in replayed.note(event).changed:
                    self.records[record.job.id] = record
                    self.ends[record.job.id] += record.phase in ENDED
        finally:
            store.close()


def checked(trial: Trial, unseen: Callable[[Paper, Key, float], bool]) -> dict[str, object]:
    """What was counted, after checking that all is as it must be.

    A gang that ran to its end may run again in one case: whoever watched over it was killed before he could say so.
    `unseen` says whether that was so, of an attempt whose last task ended at some time.
    """
    paper, asked = Paper(str(trial.service.store)), trial.load.accepted
    gangs: dict[Key, list[Task]] = defaultdict(list)
    for task in trial.tasks:
        gangs[task.job, task.attempt].append(task)
    _check_paper(paper, asked)
    for key, tasks in gangs.items():
        ranks = Counter(task.rank for task in tasks)
        assert max(ranks.values()) == 1, f"{key} began twice: {tasks}"
        assert set(ranks) <= set(range(asked[key[0]])), f"{key} has more tasks than were asked for: {tasks}"
        assert not any(task.beside for task in tasks), f"two attempts ran at the same time: {tasks}"
        assert not any(task.runs for task in tasks), f"{key} still runs: {tasks}"
    whole = {key for key, tasks in gangs.items() if sum(task.ended is not None for task in tasks) == asked[key[0]]}
    finished = {key for key, told in paper.told.items() if isinstance(told, Finished)}
    assert finished <= whole, f"not whole, or not to its end: {[(key, gangs[key]) for key in finished - whole]}"
    for key, told in paper.told.items():
        if isinstance(told, Failed):
            assert told.fault != "job", f"{told}: {gangs[key]}"
    unknown = whole - finished
    for key in unknown:
        last = max(task.ended or 0.0 for task in gangs[key])
        assert unseen(paper, key, last), f"ran to its end, and was to run again: {paper.told[key]}"
    _check_order(gangs)
    return {
        "kills": dict(Counter(kill.kind for kill in trial.kills)),
        "jobs accepted": len(asked),
        "requests": trial.load.tries,
        "attempts": sum(record.attempt for record in paper.records.values()),
        "attempts begun": len(gangs),
        "cut off": len(gangs) - len(finished),
        "of them in parts": sum(len(tasks) < asked[key[0]] for key, tasks in gangs.items()),
        "ended unseen": len(unknown),
        "finished": len(finished),
        "seconds": round(trial.seconds),
    }


def _check_paper(paper: Paper, asked: Mapping[str, int]) -> None:
    assert set(asked) == set(paper.submitted), "a job was lost, or came from nowhere"
    assert set(paper.submitted.values()) == {1}, "a job was submitted twice"
    assert set(paper.ends) == set(asked)
    assert set(paper.ends.values()) == {1}, "a job did not end exactly once"
    wrong = [record for record in paper.records.values() if record.phase != "finished"]
    assert not wrong, f"jobs that did not finish: {wrong[:3]}"


def _check_order(gangs: Mapping[Key, list[Task]]) -> None:
    """A task of an earlier attempt never begins after one of a later attempt."""
    for (job, attempt), tasks in gangs.items():
        later = [task for key, others in gangs.items() if key[0] == job and key[1] > attempt for task in others]
        if later:
            assert max(task.began for task in tasks) < min(task.began for task in later), f"{job}: {tasks} {later}"
