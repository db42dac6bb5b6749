"""Directories for the output of jobs and for their marks.

Jobs that run as the user of berth share one directory. With `users`, each user has a directory in it that only that
user can open: berth creates it, as root. Only root may be able to change anything above it, so that no user can
replace it by another directory or a link.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from berth.errors import InvalidInput
from berth.live.core.events import Failed, Finished, last_line
from berth.live.engines import EngineError
from berth.live.engines.slurm.environment import NotPossible
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.spool import AttemptRecord

__all__ = [
    "AGAIN",
    "DIRECTORY",
    "LAUNCH",
    "Mark",
    "Outputs",
    "check_shared",
    "has_lost_its_script",
    "last_words",
    "make_shared",
    "mark_of",
    "output_of",
    "read_mark",
]


def check_shared(directory: Path) -> None:
    """Refuse an output directory that users cannot reach, or that users other than root can change."""
    directory = directory.absolute()
    if directory.exists() and not directory.is_dir():
        raise InvalidInput("a directory", found=f"{directory}: Not a directory", key="output")
    resolved = directory.resolve()
    for path in (directory, *directory.parents):
        if path.is_symlink() and path.lstat().st_uid != 0:
            said = f"{directory}, and {path} is a link of uid {path.lstat().st_uid}"
            raise InvalidInput("a directory that only root can change", found=said, key="output")
    for path in (resolved, *resolved.parents):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue  # berth creates it
        except OSError as error:
            raise InvalidInput("a directory", found=f"{path}: {error.strerror}", key="output") from None
        mode = stat.S_IMODE(found.st_mode)
        said = f"{directory}, and {path} has mode {mode:o}" if path != resolved else f"{directory} with mode {mode:o}"
        if not mode & stat.S_IXOTH:
            expected = f"a directory that every user can reach (chmod o+x {path}, or set `output`)"
            raise InvalidInput(expected, found=said, key="output")
        shared = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and found.st_gid != 0)
        if found.st_uid != 0 or (shared and (path == resolved or not mode & stat.S_ISVTX)):
            owner = f" and belongs to uid {found.st_uid}" if found.st_uid else ""
            expected = f"a directory that only root can change (chown root {path}; chmod go-w {path})"
            raise InvalidInput(expected, found=said + owner, key="output")


def make_shared(directory: Path) -> None:
    """Create the directory that holds the users' directories; users can traverse it, whatever the umask of berth is."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir()
            path.chmod(0o755)
    except OSError as error:
        found = f"{directory}: {error.strerror}"
        raise InvalidInput("a directory that can be made", found=found, key="output") from None
    check_shared(directory)


class Outputs:
    """Files of the attempts of one instance."""

    def __init__(self, settings: SlurmSettings, instance: str) -> None:
        self._base, self._instance = settings.outputs.absolute(), instance
        self._users, self._retention = settings.users, settings.retention

    def make(self, user: pwd.struct_passwd) -> None:
        """Create the directory of a user if it does not exist. Raises `NotPossible` if others could write to it."""
        path = self._base / user.pw_name
        try:
            with suppress(FileExistsError):
                path.mkdir(0o700)
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() != user.pw_uid:  # just created
                os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
                found = path.lstat()
        except OSError as error:
            raise EngineError(f"the output directory {path} cannot be made: {error.strerror or error}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user.pw_uid or found.st_mode & 0o022:
            raise NotPossible(
                f"its output directory {path} must belong to {user.pw_name} and be writable by nobody else"
            )

    def output(self, record: AttemptRecord) -> Path:
        """The output file of an attempt."""
        return output_of(self._base / record.user, *record.key)

    def mark(self, record: AttemptRecord) -> Mark | None:
        """The mark of an attempt, if there is one."""
        path = mark_of(self._base / record.user, self._instance, *record.key, record.secret)
        return read_mark(path, self._uid(record))

    def last_words(self, record: AttemptRecord) -> str:
        """The last line that an attempt printed."""
        return last_words(self.output(record), self._uid(record))

    def has_lost_its_script(self, record: AttemptRecord) -> bool:
        """Whether the output of an attempt says that slurmd had removed its script."""
        return has_lost_its_script(self.output(record), self._uid(record))

    def _uid(self, record: AttemptRecord) -> int | None:
        """The user who must own the files of an attempt; None if it runs as the user of berth."""
        if not self._users and not record.user:
            return None
        try:
            return pwd.getpwnam(record.user).pw_uid
        except KeyError:
            return -1  # no file belongs to this uid

    def sweep(self, running: Collection[str]) -> None:
        """Remove old files, except of attempts that run (`JOB.ATTEMPT`)."""
        with suppress(OSError):
            for directory in self._directories():
                sweep(directory, self._instance, self._retention, running)

    def _directories(self) -> list[Path]:
        if not self._users:
            return [self._base]
        with os.scandir(self._base) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def sweep(directory: Path, instance: str, retention: float, running: Collection[str]) -> None:
    """Remove outputs that are older than `retention` seconds, and marks after a day, once their outputs are gone.

    Only outputs with a mark of this instance are removed; other files in the directory are not berth's.
    """
    pattern, now = re.compile(rf"(.+)\.{instance}(\.[0-9a-f]+)?\.mark"), time.time()
    with os.scandir(directory) as entries:
        marks = [match for entry in entries if (match := pattern.fullmatch(entry.name))]
    for match in marks:
        if match[1] in running:
            continue
        mark, output = directory / match[0], directory / f"{match[1]}.out"
        with suppress(OSError):
            printed = output.lstat().st_mtime if os.path.lexists(output) else None
            age = now - max(mark.lstat().st_mtime, printed or 0.0)
            if printed is not None and age > retention:
                output.unlink()
                printed = None
            if age > KEPT and (printed is None or retention == float("inf")):
                mark.unlink()


AGAIN = 61
"""The signal that ends a script which has run before."""
LAUNCH = 60
"""The signal that ends a script whose tasks Slurm did not start."""
DIRECTORY = 59
"""The signal that ends a script which cannot enter the working directory of its job."""
KILLED = (128 + 9, 128 + 15)
"""Exit codes of scripts whose tasks were killed, as Slurm does with jobs that slurmctld has forgotten."""
KEPT = 86400.0
"""The least seconds for which marks are kept."""
WORDS = 4096
"""Bytes at the end of an output that are searched for its last line."""
NOT_ITS_OWN = re.compile(r"srun: |slurmstepd\S*: |(Terminated|Killed)$")
"""Lines of Slurm, and of shells whose task was ended with another."""
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
        """How it ended, if it ended by itself: if it was killed, the mark does not tell by whom."""
        if self.ended is None or self.code in KILLED:
            return None
        if self.code:
            return Failed(self.ended, *key, f"it ended with exit code {self.code}", "job")
        return Finished(self.ended, *key, self.seconds)


def output_of(directory: Path, job: str, attempt: int) -> Path:
    """The output file of an attempt."""
    return directory / f"{job}.{attempt}.out"


def last_words(path: Path, uid: int | None = None) -> str:
    """The last line that an attempt itself printed, without Slurm's lines after it, if it can be read here."""
    found = [line for line in _read(path, WORDS, uid, last=True).splitlines() if line.strip()]
    lines = [line for line in found if not NOT_ITS_OWN.match(line)] or found
    return last_line(lines[-1]) if lines else ""


def has_lost_its_script(path: Path, uid: int | None = None) -> bool:
    """Whether an output begins with the error of a missing script: slurmd may mistake it for an old one."""
    return NO_SCRIPT.match(_read(path, WORDS, uid)) is not None


def _read(path: Path, size: int, uid: int | None = None, last: bool = False) -> str:
    """The first or the last bytes of a plain file.

    A job can leave anything at the path. A link is not followed, and a file of another user than `uid` is not read,
    such as a hard link to it.
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
    """The mark file of an attempt. Its name has a secret, which attempts of older versions lack."""
    return directory / ".".join([job, str(attempt), instance, *([secret] if secret else []), "mark"])


def read_mark(path: Path, uid: int | None = None) -> Mark | None:
    """Read a mark, if there is one and it belongs to the user `uid`, if one is given."""
    match = LINES.fullmatch(_read(path, 200, uid))
    if match is None:
        return None
    return Mark(float(match[1]), None if match[2] is None else float(match[2]), int(match[3] or 0))
