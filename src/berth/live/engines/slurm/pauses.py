"""What a refused submission means, and pauses of submissions after a refusal that may concern all jobs.

Slurm refuses for many reasons that are not the job's: the disk of slurmctld is full, a limit on submitted jobs is
reached, a partition takes no jobs. Only a refusal that any cluster would repeat (`JOB`) is the job's fault; one of
nodes and amounts (`PLACES`) may not come again on other nodes. After all others, submissions as the same system user
pause: one of them is tried after a while, which doubles each time that it is refused, and all go on once Slurm takes
one. The texts are those of Slurm 19.05 to 26.05 (`slurm_strerror`, and sbatch's own).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from berth.live.engines import Paused

__all__ = ["Pauses", "Turn", "fault_of"]

JOB = re.compile(
    "Pathname of a file, directory or other parameter too long|Argument list too long|Batch script is empty|"
    "Batch script contains|does not look like a batch script|contain a NULL character"
)
"""Refusals of what a job is: its script, and texts that are too long."""
LIMIT = re.compile("Requested time limit is invalid")
"""The refusal of a time limit, which is the job's fault if the job has one."""
PLACES = re.compile(
    "Requested node configuration is not available|Required node not available|Requested nodes not in this partition|"
    "Requested nodes are busy|Invalid node name|Node count specification invalid|More processors requested|"
    "Requested more tasks than available|(Task count|CPU count|Task distribution) specification invalid|"
    r"Memory required by task is not available|Invalid generic resource|Duplicate generic resource|Invalid GRES|"
    "Requested GRES option unsupported"
)
"""Refusals of nodes, and of what is asked of each of them."""
FIRST, LONGEST = 1.0, 30.0
"""Seconds of a pause, at first and at most."""
log = logging.getLogger(__name__)


def fault_of(said: str, limited: bool) -> Literal["job", "server", "engine"]:
    """Whose fault a refusal is; `limited` says whether the job has a time limit. "engine": submissions pause.

    >>> fault_of("sbatch: Batch script is empty!", False)
    'job'
    >>> fault_of("sbatch: Batch job submission failed: Requested node configuration is not available", False)
    'server'
    >>> fault_of("sbatch: Batch job submission failed: I/O error writing script/environment to file", False)
    'engine'
    """
    if JOB.search(said) or (limited and LIMIT.search(said)):
        return "job"
    return "server" if PLACES.search(said) else "engine"


@dataclass
class _Pause:
    reason: str
    seconds: float
    until: float
    trying: bool = False
    """Whether a submission is under way that shows whether Slurm takes jobs again."""


@dataclass
class Turn:
    """A submission that is under way; `refusal` or `taken` is set when Slurm has answered."""

    refusal: str = ""
    taken: bool = False


class Pauses:
    """The pauses of submissions, by system user; the user that runs berth is empty."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def check(self, user: str) -> None:
        """Raise `Paused` while nothing may be submitted as this user."""
        pause, now = self._pauses.get(user), self._clock()
        if pause is None:
            return
        if pause.until <= now - LONGEST and not pause.trying:  # nothing has been submitted for long
            del self._pauses[user]
        elif pause.trying or now < pause.until:
            raise Paused(self._said(user, pause, now), max(pause.until - now, FIRST))

    @contextmanager
    def turn(self, user: str) -> Iterator[Turn]:
        """A submission as this user; raises `Paused` if it may not be now. While Slurm refuses, there is one a time."""
        self.check(user)
        before, turn = self._pauses.get(user), Turn()
        if before is not None:
            before.trying = True
        try:
            yield turn
        finally:
            if before is not None:
                before.trying = False
            if turn.taken:
                if self._pauses.pop(user, None) is not None:
                    log.warning("Slurm takes jobs again%s", _as(user))
            elif turn.refusal and self._pauses.get(user) is before:  # else it was sent before the pause began
                seconds = FIRST if before is None else min(2 * before.seconds, LONGEST)
                self._pauses[user] = _Pause(turn.refusal, seconds, self._clock() + seconds)
                log.warning("Slurm refused a job, and submissions%s pause %g s: %s", _as(user), seconds, turn.refusal)

    @property
    def said(self) -> str | None:
        """What pauses, in words; None if nothing does."""
        now = self._clock()
        there = {user: one for user, one in self._pauses.items() if one.trying or one.until > now - LONGEST}
        return "; ".join(self._said(user, pause, now) for user, pause in sorted(there.items())) or None

    def _said(self, user: str, pause: _Pause, now: float) -> str:
        left = pause.until - now
        when = f"in {left:.0f} s" if left >= 0.5 else "now"
        return f"submissions to Slurm{_as(user)} pause, and one is tried {when}: {pause.reason}"


def _as(user: str) -> str:
    return f" as {user}" if user else ""
