"""Result directory: manifest, finished cells, and reports. Files are written atomically.

```
DIR/manifest.json    what was run, with what, when; also marks a result directory
DIR/cells/KEY.*      one finished cell each, as its kind writes it
DIR/summary.parquet  one row per information setting and policy
DIR/slots.parquet    one row per information setting, policy, seed and slot
DIR/plots/*.png|svg  DIR/report.html
DIR/.lock            held by the run that writes here; released however that run ends
```
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from berth.about import HOME, VERSION
from berth.errors import BerthError, InvalidInput

if TYPE_CHECKING:
    import polars as pl

try:
    import fcntl
except ImportError:  # Windows has no fcntl: two concurrent runs go unnoticed
    fcntl = None  # type: ignore[assignment]

__all__ = ["KIND", "ResultDirectory", "command_line", "commit", "machine", "now", "opened", "versions"]

KIND = "berth comparison"
LOCK = ".lock"


@contextmanager
def opened(out: str | os.PathLike[str] | None, kind: str = KIND) -> Iterator[ResultDirectory | None]:
    """Open the result directory of a run while it runs; None if nothing is saved."""
    directory = None if out is None else ResultDirectory(out, kind)
    try:
        yield directory
    finally:
        if directory is not None:
            directory.release()


class ResultDirectory:
    """DIR opened for writing; refuses one that holds other files, or that another run is writing to."""

    def __init__(self, path: str | os.PathLike[str], kind: str = KIND) -> None:
        self.path, self.kind = Path(path), kind
        self._lock: IO[str] | None = None
        if self.path.is_file():
            raise InvalidInput("a directory", value=str(path), found=f"the file {str(path)!r}", key="out")
        holds = self.path.is_dir() and any(p.is_file() and p.name != LOCK for p in self.path.rglob("*"))
        if holds and self.manifest() is None:
            raise InvalidInput(
                "a new or empty directory, or one with berth results",
                found=f"{str(path)!r}, which holds other files",
                key="out",
            )

    def create(self, facts: Mapping[str, Any]) -> None:
        """Create the directory, manifest first, so that it is a result directory even after a crash."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self.write_json("manifest.json", self.described(facts))
            for folder in ("cells", "plots"):
                (self.path / folder).mkdir(exist_ok=True)
                for left_over in (self.path / folder).glob(".*.tmp"):  # left by a process killed while writing
                    left_over.unlink(missing_ok=True)
        except InvalidInput:
            raise
        except (OSError, BerthError) as error:
            raise InvalidInput("a directory that can be written", found=f"{self.path} ({error})", key="out") from error

    def _take_lock(self) -> None:
        """Lock out other runs; the system releases the lock when this process ends, even if it is killed."""
        if fcntl is None:
            return
        lock = open(self.path / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            who = lock.read().strip() or "another process"
            lock.close()
            expected = "a directory that no other run is writing to: wait until it is done, or give another one"
            raise InvalidInput(expected, found=f"{str(self.path)!r}, where {who} is at work", key="out") from None
        except OSError:  # a file system without locks
            lock.close()
            return
        with contextlib.suppress(OSError):  # full disk: only the name of this process is lost
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, if the directory has one from berth."""
        try:
            found = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("kind") == self.kind else None

    def described(
        self, facts: Mapping[str, Any], finished: str | None = None, reused: int = 0, failed: int = 0
    ) -> dict[str, Any]:
        """Build a manifest: facts of a run and of this machine; `finished` is None until every file is written."""
        return {
            "kind": self.kind,
            **facts,
            "finished": finished,
            "cells_reused": reused,
            "cells_failed": failed,
            "commit": commit(),
            "platform": platform.platform(),
            "machine": machine(),
        }

    def write(self, name: str, write: Callable[[Path], object]) -> Path:
        """Let `write` fill a temporary file beside DIR/name, then rename it into place."""
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            write(temporary)
            os.replace(temporary, target)
        except OSError as error:
            raise BerthError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return target

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file."""
        return self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file."""
        return self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def write_table(self, name: str, table: pl.DataFrame) -> Path:
        """Write a Parquet file."""
        # Through memory: after an interrupt, polars' threads must not write to a file that is being removed.
        whole = io.BytesIO()
        table.write_parquet(whole)
        return self.write(name, lambda path: path.write_bytes(whole.getvalue()))


def command_line(
    scenario: str,
    facts: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
    out: str | os.PathLike[str] | None,
    options: Mapping[str, str] | None = None,
) -> str:
    """Command that repeats a comparison with these facts and further options.

    >>> facts = {"policies": ["drf"], "seeds": [0, 1], "baseline": "drf", "information": ["hidden"], "oracles": []}
    >>> command_line("small", facts, {"horizon": 50}, None)
    'berth compare small --policy drf --seeds 2 --baseline drf --arrivals hidden --oracle none --set horizon=50'
    """
    words = ["berth", "compare", scenario]
    for policy in facts["policies"]:
        words += ["--policy", policy]
    seeds, information = list(facts["seeds"]), list(facts["information"])
    if seeds == list(range(len(seeds))):
        words += ["--seeds", str(len(seeds))]
    else:
        for seed in seeds:
            words += ["--seed", str(seed)]
    words += ["--baseline", facts["baseline"], "--arrivals", "both" if len(information) > 1 else information[0]]
    for oracle in facts["oracles"] or ["none"]:
        words += ["--oracle", oracle]
    for key, value in (overrides or {}).items():
        words += ["--set", f"{key}={value}"]
    for name, text in (options or {}).items():
        words += [f"--{name}", text]
    if out is not None:
        words += ["--out", os.fspath(out)]
    return shlex.join(words)


def machine() -> str:
    """Short description of this machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Versions of berth, Python and the packages that the numbers depend on."""
    found = {"berth": VERSION, "python": platform.python_version()}
    for package in ("numpy", "numba", "scipy", "polars"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


@cache
def commit() -> str | None:
    """Commit of berth's code, ending in "-dirty" if files were changed since; None for a release.

    It is that of the checkout that berth runs from, or the one that pip installed berth from.
    """
    checkout = HOME.parents[1]
    if (checkout / ".git").exists() and (checkout / "src" / "berth") == HOME:
        asked = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    with contextlib.suppress(PackageNotFoundError, ValueError, AttributeError):
        origin = json.loads(distribution("berth-scheduler").read_text("direct_url.json") or "{}")
        return origin.get("vcs_info", {}).get("commit_id")  # type: ignore[no-any-return]
    return None


def now() -> str:
    """Current time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
