"""Batch scheduling on one pool of processors, written plainly from its definition: lists, and no cleverness.

It shares no code with the package. Jobs are (submit, size, run, estimate), by arrival; what comes out is when each
starts.
"""

from __future__ import annotations

import gzip
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

Job = tuple[float, float, float, float]


def simulate_batch(jobs: Sequence[Job], processors: float, decide: Callable[..., list[int]]) -> list[float]:
    """Event by event: whoever ends leaves, whoever arrives waits, then `decide` says who starts."""
    start = [-1.0] * len(jobs)
    running: list[int] = []
    waiting: list[int] = []
    coming = list(range(len(jobs)))
    while coming or running:
        moments = [jobs[i][0] for i in coming[:1]] + [start[i] + jobs[i][2] for i in running]
        now = min(moments)
        running = [i for i in running if start[i] + jobs[i][2] > now]
        while coming and jobs[coming[0]][0] == now:
            waiting.append(coming.pop(0))
        free = processors - sum(jobs[i][1] for i in running)
        for i in decide(jobs, now, waiting, running, start, free):
            start[i] = now
            waiting.remove(i)
            running.append(i)
    return start


def by_arrival(jobs: Sequence[Job], waiting: list[int]) -> list[int]:
    return sorted(waiting)


def by_length(jobs: Sequence[Job], waiting: list[int]) -> list[int]:
    return sorted(waiting, key=lambda i: (jobs[i][3], i))


Order = Callable[[Sequence[Job], list[int]], list[int]]


def strict(order: Order) -> Callable[..., list[int]]:
    """Nobody passes the head of the queue."""

    def decide(
        jobs: Sequence[Job], now: float, waiting: list[int], running: object, start: object, free: float
    ) -> list[int]:
        chosen = []
        for i in order(jobs, waiting):
            if jobs[i][1] > free:
                break
            free -= jobs[i][1]
            chosen.append(i)
        return chosen

    return decide


def whoever_fits(order: Order) -> Callable[..., list[int]]:
    """Everybody who fits starts."""

    def decide(
        jobs: Sequence[Job], now: float, waiting: list[int], running: object, start: object, free: float
    ) -> list[int]:
        chosen = []
        for i in order(jobs, waiting):
            if jobs[i][1] <= free:
                free -= jobs[i][1]
                chosen.append(i)
        return chosen

    return decide


def easy(order: Order) -> Callable[..., list[int]]:
    """EASY backfilling: one reservation, for the head; others start if it need not wait longer for them."""

    def decide(
        jobs: Sequence[Job], now: float, waiting: list[int], running: list[int], start: list[float], free: float
    ) -> list[int]:
        chosen: list[int] = []
        queue = order(jobs, waiting)
        while queue and jobs[queue[0]][1] <= free:
            free -= jobs[queue[0]][1]
            chosen.append(queue.pop(0))
        if not queue:
            return chosen
        head = queue.pop(0)
        ends = [(max(start[i] + jobs[i][3], now), jobs[i][1]) for i in running]
        ends += [(now + jobs[i][3], jobs[i][1]) for i in chosen]
        shadow = min(t for t, _ in ends if free + sum(size for end, size in ends if end <= t) >= jobs[head][1])
        extra = free + sum(size for end, size in ends if end <= shadow) - jobs[head][1]
        for i in queue:
            size, estimate = jobs[i][1], jobs[i][3]
            if size > free or (now + estimate > shadow and size > extra):
                continue
            free -= size
            if now + estimate > shadow:
                extra -= size
            chosen.append(i)
        return chosen

    return decide


Score = Callable[..., float]


def ranked(
    jobs: Sequence[Job],
    processors: float,
    score: Score,
    backfill: str,
    committed: bool,
    singly: bool,
    owners: Sequence[int] | None = None,
    ties: Sequence[float] | None = None,
) -> list[float]:
    """A queue by a score of (wait, estimate, size, submit), the least first, that is computed at every moment.

    Of jobs with equal scores the one with the least number in `ties` is first, and then the earliest.

    `committed`: what was picked and does not fit stays picked. `singly`: arrivals and ends are moments of their own.
    `owners`: the score also takes what is free, how many jobs wait, and a prediction of the run time, the mean of the
    owner's last two jobs that ended, at most the estimate; it is computed after every start. An owner of -1 has none.
    """
    past: dict[int, list[float]] = {}
    start = [-1.0] * len(jobs)
    running: list[int] = []
    waiting: list[int] = []
    coming = list(range(len(jobs)))
    head: int | None = None
    shadow = 0.0
    while coming or running:
        now = min([jobs[i][0] for i in coming[:1]] + [start[i] + jobs[i][2] for i in running])
        ended = sorted(i for i in running if start[i] + jobs[i][2] == now)
        arriving = [i for i in coming if jobs[i][0] == now]
        if singly:
            arriving, ended = (arriving[:1], []) if arriving else ([], ended[:1])
        running = [i for i in running if i not in ended]
        for i in ended:
            if owners is not None and owners[i] >= 0:
                past.setdefault(owners[i], []).append(jobs[i][2])
        coming = [i for i in coming if i not in arriving]
        waiting += arriving
        kept = head if committed else None
        free = processors - sum(jobs[i][1] for i in running)

        def sort(some: list[int], free: float, now: float = now, kept: int | None = kept) -> list[int]:
            known = {}
            for i in some:
                last = [] if owners is None else past.get(owners[i], [])[-2:]
                run = min(jobs[i][3], sum(last) / len(last)) if last else jobs[i][3]
                state = () if owners is None else (free, len(some), run)
                known[i] = score(now - jobs[i][0], jobs[i][3], jobs[i][1], jobs[i][0], *state)
            return sorted(some, key=lambda i: (i != kept, known[i], 0.0 if ties is None else ties[i], i))

        queue = sort(waiting, free)
        before, head = head, None
        chosen: list[int] = []
        while queue and jobs[queue[0]][1] <= free:
            free -= jobs[queue[0]][1]
            chosen.append(queue.pop(0))
            queue = queue if owners is None else sort(queue, free)
        if queue:
            head = queue.pop(0)
            ends = [(max(start[i] + jobs[i][3], now), jobs[i][1]) for i in running]
            ends += [(now + jobs[i][3], jobs[i][1]) for i in chosen]
            if backfill != "shadow" or head != before:
                shadow = min(t for t, _ in ends if free + sum(n for end, n in ends if end <= t) >= jobs[head][1])
            extra = free + sum(n for end, n in ends if end <= shadow) - jobs[head][1]
            for i in sorted(queue) if backfill == "shadow" else queue:
                size, end = jobs[i][1], now + jobs[i][3]
                passes = {"none": False, "any": True, "shadow": end < shadow, "easy": end <= shadow or size <= extra}
                if size <= free and passes[backfill]:
                    free -= size
                    extra -= size if end > shadow else 0.0
                    chosen.append(i)
        for i in chosen:
            start[i] = now
            waiting.remove(i)
            running.append(i)
    return start


def conservative(jobs: Sequence[Job], processors: float) -> list[float]:
    """Conservative backfilling: everybody has a reservation, which only ever moves forward.

    A job that arrives gets the earliest place that delays nobody. When a job ends before its estimate, the others in
    order of arrival take the earliest place that is then there for them, again until none moves. Where jobs run longer
    than said, all reservations are made anew, in order of arrival.
    """
    start = [-1.0] * len(jobs)
    planned: dict[int, float] = {}
    running: list[int] = []
    coming = list(range(len(jobs)))

    def known_end(i: int, now: float) -> float:
        end = start[i] + jobs[i][3]
        return end if end > now else float("inf")  # it runs on, nobody knows how long

    def used(time: float, now: float, apart: int) -> float:
        total = sum(jobs[i][1] for i in running if known_end(i, now) > time)
        return total + sum(jobs[i][1] for i, at in planned.items() if i != apart and at <= time < at + jobs[i][3])

    def earliest(i: int, now: float) -> float:
        marks = [at for j, at in planned.items() if j != i] + [at + jobs[j][3] for j, at in planned.items() if j != i]
        marks += [known_end(j, now) for j in running]
        for at in sorted({now, *(mark for mark in marks if now < mark < float("inf"))}):
            inside = [at, *(mark for mark in marks if at < mark < at + jobs[i][3])]
            if all(used(time, now, i) + jobs[i][1] <= processors for time in inside):
                return at
        return float("inf")

    while coming or running:
        now = min([jobs[i][0] for i in coming[:1]] + [start[i] + jobs[i][2] for i in running])
        gone = [i for i in running if start[i] + jobs[i][2] <= now]
        running = [i for i in running if i not in gone]
        early = any(start[i] + jobs[i][3] > now for i in gone)
        late = any(start[i] + jobs[i][3] <= now for i in running) or any(start[i] + jobs[i][3] < now for i in gone)
        if late:
            for i in sorted(planned):
                planned.pop(i)
            # filled in below, in order of arrival
        new = []
        while coming and jobs[coming[0]][0] == now:
            new.append(coming.pop(0))
        waiting = sorted({*planned, *new, *(i for i in range(len(jobs)) if start[i] < 0 and jobs[i][0] <= now)})
        moved = True
        while moved:
            moved = False
            for i in waiting:
                if i not in planned or early:
                    at = earliest(i, now)
                    moved = moved or at != planned.get(i)
                    planned[i] = at
            moved = moved and early
        for i in sorted(planned):
            if planned[i] <= now:
                start[i] = now
                running.append(i)
                planned.pop(i)
    return start


def strict_fcfs(jobs: Sequence[Job], processors: float) -> list[float]:
    """First come, first served, nobody passes: event by event, fast enough for whole logs."""
    start = [-1.0] * len(jobs)
    ends: list[tuple[float, float]] = []  # end and size of what runs
    queue: deque[int] = deque()
    free, coming = processors, 0
    while coming < len(jobs) or ends:
        now = ends[0][0] if ends else jobs[coming][0]
        if coming < len(jobs):
            now = min(now, jobs[coming][0])
        while ends and ends[0][0] == now:
            free += heapq.heappop(ends)[1]
        while coming < len(jobs) and jobs[coming][0] == now:
            queue.append(coming)
            coming += 1
        while queue and jobs[queue[0]][1] <= free:
            i = queue.popleft()
            _, size, run, _ = jobs[i]
            start[i] = now
            free -= size
            heapq.heappush(ends, (now + run, size))
    return start


def swf_jobs(path: Path) -> list[Job]:
    """The jobs of a log in the Standard Workload Format, by arrival: those with a run time and a size.

    The size is field 8, or 5 where that is unknown; the estimate is field 9, or the run time.
    """
    text = gzip.decompress(path.read_bytes()).decode("latin-1") if path.suffix == ".gz" else path.read_text()
    jobs = []
    for line in text.splitlines():
        if line.strip() and not line.startswith(";"):
            row = [float(cell) for cell in line.split()[:18]]
            size = row[7] if row[7] != -1 else row[4]
            if row[3] > 0 and size > 0:
                jobs.append((row[1], size, row[3], row[8] if row[8] > 0 else row[3]))
    return sorted(jobs, key=lambda job: job[0])
