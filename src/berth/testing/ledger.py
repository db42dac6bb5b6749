"""A witness for clusters whose tasks run on this machine: each task writes into a folder when it begins and ends.

A task has to know what it is. The engine tells it by environment variables: `BERTH_JOB`, `BERTH_ATTEMPT`, `BERTH_ROLE`
and `BERTH_SERVER`, unless a ledger is given other names for some of them, such as `server="SLURMD_NODENAME"`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from berth.dispatch.jobs import Job, Role
from berth.testing import witness
from berth.testing.site import Script, Sighting

__all__ = ["Ledger"]

NAMES = {"job": "BERTH_JOB", "attempt": "BERTH_ATTEMPT", "role": "BERTH_ROLE", "server": "BERTH_SERVER"}


class Ledger:
    """Jobs that write into a folder, and what they wrote: `job` and `begun` of a `berth.testing.site.Site`."""

    def __init__(self, folder: Path, **names: str) -> None:
        self._folder, self._names = folder, {**NAMES, **names}

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        """A job whose tasks do what the script says."""
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
        found = []
        for path in sorted(self._folder.glob("*.begun")):
            line = json.loads(path.read_text())
            runs = witness.birth(line["pid"]) == line["birth"]
            # looked for after the process, which may have ended in between
            ended = path.with_suffix(".ended").exists()
            found.append(
                Sighting(
                    line["job"],
                    int(line["attempt"] or 0),
                    line["role"],
                    line["server"],
                    "ended" if ended else "runs" if runs else "gone",
                    tuple(line["arguments"]),
                    line["environment"],
                )
            )
        return found
