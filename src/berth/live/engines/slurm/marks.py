"""Marks that batch scripts leave beside the output of jobs: when they began, when they ended, and how.

A slurmctld that was killed forgets up to five seconds: it may want to run again what already ran. So a script that
finds its own mark ends at once, by a signal that nobody uses. Where berth sees the directory of outputs, as it does on
one machine or with a shared file system, marks also tell it how an attempt ended that Slurm has forgotten. A mark lies
in a directory that only the user of its job can write (`outputs`), and its name has a secret that only the batch script
and the spool of berth know. So nobody can make it before the script runs.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from berth.live.core.events import Failed, Finished

__all__ = [
    "AGAIN",
    "DIRECTORY",
    "LAUNCH",
    "Mark",
    "has_lost_its_script",
    "last_words",
    "mark_of",
    "output_of",
    "read_mark",
]

AGAIN = 61
"""The signal by which a script ends that has run before."""
LAUNCH = 60
"""The signal by which a script ends whose tasks Slurm did not start."""
DIRECTORY = 59
"""The signal by which a script ends that cannot enter the working directory of its job."""
KILLED = (128 + 9, 128 + 15)
"""Exit codes of scripts whose tasks were killed, as Slurm does with those that slurmctld has forgotten."""
KEPT = 86400.0
"""Seconds for which marks are kept at least."""
WORDS = 4096
"""Bytes at the end of an output in which its last line is looked for."""
NOT_ITS_OWN = re.compile(r"srun: |slurmstepd\S*: |(Terminated|Killed)$")
"""What Slurm says, and shells of tasks that were ended with another."""
NO_SCRIPT = re.compile(r"slurmstepd\S*: error: execve\(\): \S*/slurm_script: ")
LINES = re.compile(r"began (\d+\.\d+)\n(?:ended (\d+\.\d+) (\d{1,3})\n)?", re.ASCII)


@dataclass(frozen=True)
class Mark:
    """When a script began and ended by the clock of its node, and its exit code."""

    began: float
    ended: float | None = None
    code: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it ran."""
        return None if self.ended is None else max(self.ended - self.began, 0.0)

    def end(self, key: tuple[str, int]) -> Finished | Failed | None:
        """How it ended, if it has by itself: who killed one that was killed is not known."""
        if self.ended is None or self.code in KILLED:
            return None
        if self.code:
            return Failed(self.ended, *key, f"it ended with exit code {self.code}", "job")
        return Finished(self.ended, *key, self.seconds)


def output_of(directory: Path, job: str, attempt: int) -> Path:
    """The file of what an attempt prints."""
    return directory / f"{job}.{attempt}.out"


def last_words(path: Path, uid: int | None = None) -> str:
    """The last line that an attempt printed, if it can be read here; its own, where others have spoken after it."""
    found = [line for line in _read(path, WORDS, uid, last=True).splitlines() if line.strip()]
    lines = [line for line in found if not NOT_ITS_OWN.match(line)] or found
    return " ".join("".join(c if c.isprintable() else " " for c in lines[-1]).split())[:300] if lines else ""


def has_lost_its_script(path: Path, uid: int | None = None) -> bool:
    """Whether an output begins with that its script was not there: slurmd may take it for an old one and remove it."""
    return NO_SCRIPT.match(_read(path, WORDS, uid)) is not None


def _read(path: Path, size: int, uid: int | None = None, last: bool = False) -> str:
    """The first or the last bytes of a plain file.

    A job can leave anything at the path. A link is not followed, and nothing is read of a file that belongs to another
    user than `uid`, such as a hard link to it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or uid not in (None, found.st_uid):
            return ""
        return os.pread(descriptor, size, max(found.st_size - size, 0) if last else 0).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def mark_of(directory: Path, instance: str, job: str, attempt: int, secret: str = "") -> Path:
    """The file of an attempt. Its name has a secret, which older versions did not give to attempts."""
    return directory / ".".join([job, str(attempt), instance, *([secret] if secret else []), "mark"])


def read_mark(path: Path, uid: int | None = None) -> Mark | None:
    """What a mark says, if there is one, and if it belongs to the user `uid` where one is given."""
    match = LINES.fullmatch(_read(path, 200, uid))
    if match is None:
        return None
    return Mark(float(match[1]), None if match[2] is None else float(match[2]), int(match[3] or 0))
