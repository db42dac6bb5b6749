"""Witness for clusters whose tasks run on this machine: each task writes to a folder when it begins and ends.

The engine identifies a task by environment variables: `BERTH_JOB`, `BERTH_ATTEMPT`, `BERTH_ROLE` and `BERTH_SERVER`,
unless the ledger is given other names, such as `server="SLURMD_NODENAME"`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from berth.live.core.jobs import Job, Role
from berth.testing.engines import witness
from berth.testing.engines.site import Script, Sighting

__all__ = ["Ledger"]

NAMES = {"job": "BERTH_JOB", "attempt": "BERTH_ATTEMPT", "role": "BERTH_ROLE", "server": "BERTH_SERVER"}


class Ledger:
    """Jobs that write to a folder, and their records: `job` and `begun` of a `berth.testing.engines.site.Site`."""

    def __init__(self, folder: Path, **names: str) -> None:
        self._folder, self._names = folder, {**NAMES, **names}
        self._over: dict[Path, Sighting] = {}

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        """Make a job whose tasks follow the script."""
        told = {
            "folder": str(self._folder.absolute()),
            "names": self._names,
            "keys": list(script.environment),
            "seconds": script.seconds,
            "fails": script.fails,
        }
        command = [sys.executable, "-IS", witness.__file__, json.dumps(told), *script.arguments]
        payload = {"command": command, "environment": dict(script.environment)}
        return Job(id, "contract", roles, estimate=max(script.seconds, 1.0), payload=payload)

    def begun(self) -> list[Sighting]:
        """Each task that began."""
        return [self._over.get(path) or self._look(path) for path in self._folder.glob("*.begun")]

    def _look(self, path: Path) -> Sighting:
        line = json.loads(path.read_text())
        runs = witness.birth(line["pid"]) == line["birth"]
        # looked for after the process, which may have ended meanwhile
        ended = path.with_suffix(".ended").exists()
        sight = Sighting(
            line["job"],
            int(line["attempt"] or 0),
            line["role"],
            line["server"],
            "ended" if ended else "runs" if runs else "gone",
            tuple(line["arguments"]),
            line["environment"],
        )
        if sight.state != "runs":
            self._over[path] = sight
        return sight

    def kill(self) -> None:
        """Kill all tasks that still run."""
        for path in self._folder.glob("*.begun"):
            line = json.loads(path.read_text())
            if witness.birth(line["pid"]) == line["birth"]:
                with suppress(ProcessLookupError):
                    os.kill(line["pid"], signal.SIGKILL)
