"""Directories for what jobs print and for their marks.

Jobs that run as the user of berth share one directory. With `users`, each user has a directory in it that only that
user can open: berth makes it, as root. Only root may be able to change anything above it, so that no user can put
another directory or a link in its place.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from berth.errors import InvalidInput
from berth.live.engines import EngineError
from berth.live.engines.slurm.environment import NotPossible
from berth.live.engines.slurm.marks import KEPT, Mark, has_lost_its_script, last_words, mark_of, output_of, read_mark
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.spool import AttemptRecord

__all__ = ["Outputs", "check_shared", "make_shared"]


def check_shared(directory: Path) -> None:
    """Refuse a directory of outputs that users cannot reach, or that users other than root can change."""
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
            continue  # berth makes it
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
    """Make the directory in which each user has one; users can go through it, whatever the umask of berth is."""
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
    """Files of attempts of one instance."""

    def __init__(self, settings: SlurmSettings, instance: str) -> None:
        self._base, self._instance = settings.outputs.absolute(), instance
        self._users, self._retention = settings.users, settings.retention

    def make(self, user: pwd.struct_passwd) -> None:
        """Make the directory of a user where it is not there. `NotPossible` where others could write to it."""
        path = self._base / user.pw_name
        try:
            with suppress(FileExistsError):
                path.mkdir(0o700)
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() != user.pw_uid:  # just made
                os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
                found = path.lstat()
        except OSError as error:
            raise EngineError(f"the output directory {path} cannot be made: {error.strerror or error}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user.pw_uid or found.st_mode & 0o022:
            raise NotPossible(
                f"its output directory {path} must belong to {user.pw_name} and be writable by nobody else"
            )

    def output(self, record: AttemptRecord) -> Path:
        """The file of what an attempt prints."""
        return output_of(self._base / record.user, *record.key)

    def mark(self, record: AttemptRecord) -> Mark | None:
        """What the mark of an attempt says, if there is one."""
        path = mark_of(self._base / record.user, self._instance, *record.key, record.secret)
        return read_mark(path, self._uid(record))

    def last_words(self, record: AttemptRecord) -> str:
        """The last line that an attempt printed."""
        return last_words(self.output(record), self._uid(record))

    def has_lost_its_script(self, record: AttemptRecord) -> bool:
        """Whether the output of an attempt says that slurmd had removed its script."""
        return has_lost_its_script(self.output(record), self._uid(record))

    def _uid(self, record: AttemptRecord) -> int | None:
        """The user to whom the files of an attempt must belong; None where it runs as the user of berth."""
        if not self._users and not record.user:
            return None
        try:
            return pwd.getpwnam(record.user).pw_uid
        except KeyError:
            return -1  # no file belongs to it

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
