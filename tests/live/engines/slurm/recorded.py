"""A Slurm that answers as real ones did (`tests.real.slurm.record`), and keeps what it was told.

Times are moved as if it had been recorded now. Jobs of the recording are known by their names; `add` makes another
job of one of them. What the engine sends changes nothing by itself, except that a submission is a job from then on.
"""

from __future__ import annotations

import copy
import json
import os
import pwd
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.commands import SlurmCommands
from berth.live.engines.slurm.submission import Submission

__all__ = ["INSTANCE", "VERSIONS", "RecordedSlurm", "engine_on", "recording"]

DATA = Path(__file__).parents[3] / "data" / "slurm"
VERSIONS = ("22.05", "24.11")
INSTANCE = "0a1b2c3d"
"""The instance of berth whose attempts are in the recordings."""
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
USER = pwd.getpwuid(os.getuid()).pw_name


def recording(version: str, name: str) -> str:
    """An answer as it was recorded."""
    return (DATA / version / name).read_text(encoding="utf-8")


class RecordedSlurm(SlurmCommands):
    """The answers of one version; `jobs` names the recorded jobs that it has at first."""

    def __init__(self, settings: SlurmSettings, version: str = VERSIONS[0], jobs: Sequence[str] = ()) -> None:
        super().__init__(settings)
        config = recording(version, "config.txt")
        stamp = STAMP.search(config)
        assert stamp is not None
        self._recorded = datetime.fromisoformat(stamp[0])
        self.now = datetime.now().replace(microsecond=0)
        """When it was recorded, as moved, in local time as Slurm tells it."""
        self.texts = {
            "config": self._moved(config),
            **{name: self._moved(recording(version, f"{name}.txt")) for name in ("nodes", "partitions", "reservation")},
        }
        self._templates: dict[str, list[dict[str, Any]]] = {}
        for job in json.loads(recording(version, "squeue.json"))["jobs"]:
            self._templates.setdefault(job["name"], []).append(job)
        self.there: list[dict[str, Any]] = []
        """The jobs that it has now."""
        self.submissions: list[Submission] = []
        self.asked: list[tuple[str, ...]] = []
        """Commands that change something, apart from submissions."""
        self.submitted_as = "small"
        """The recorded job that a submission looks like."""
        for name in jobs:
            self.add(name)

    def _moved(self, text: str) -> str:
        """A text with its times moved to now."""

        def move(stamp: re.Match[str]) -> str:
            return (datetime.fromisoformat(stamp[0]) - self._recorded + self.now).isoformat()

        return STAMP.sub(move, text)

    def add(self, like: str, /, **changes: Any) -> list[dict[str, Any]]:
        """Have the job, or the components, that were recorded under a name, with other values of some keys."""
        moved = (self.now - self._recorded) // timedelta(seconds=1)
        made = copy.deepcopy(self._templates[like])
        for job in made:
            for key, value in job.items():
                seconds = value.get("number") if isinstance(value, dict) else value
                if key.endswith("_time") and seconds:
                    job[key] = {**value, "number": seconds + moved} if isinstance(value, dict) else seconds + moved
            job.update({"user_name": USER, **changes})
        self.there += made
        return made

    async def _ask(self, *words: str, given: bytes = b"", variables: bytes | None = None) -> str:
        """What the command answers."""
        match words:
            case ["squeue", "--json", *_]:
                return json.dumps({"jobs": self.there})
            case ["scontrol", *_, "show", what]:
                return self.texts[what]
            case ["sstat" | "squeue", *_]:
                return ""
        self.asked.append(words)
        return ""

    async def submit(self, submission: Submission) -> int:
        self.submissions.append(submission)
        number = 100 + len(self.submissions)
        now = int(time.time())
        times = {"submit_time": now, "start_time": now}
        self.add(self.submitted_as, name=submission.name, comment=submission.tag, job_id=number, **times)
        return number

    async def skip(self, number: int) -> None:
        """Numbers are never used twice here."""

    def give(self, job: dict[str, Any], like: str) -> None:
        """A job, or a component of one, gets the state of a recorded one."""
        state = self._templates[like][0]
        job.update({key: state[key] for key in ("job_state", "exit_code", "derived_exit_code", "state_reason")})

    def end(self, name: str, like: str) -> None:
        """A job ends as another one did."""
        for job in self.there:
            if job["name"] == name:
                self.give(job, like)
                job["end_time"] = int(time.time())


def engine_on(
    folder: Path,
    version: str = VERSIONS[0],
    jobs: Sequence[str] = (),
    **more: Any,
) -> tuple[SlurmEngine, RecordedSlurm]:
    """An engine of the recorded instance on a recorded Slurm, with a spool in a folder and more settings."""
    spool = folder / "spool"
    spool.mkdir(exist_ok=True)
    (spool / "instance").write_text(INSTANCE)
    settings = SlurmSettings(spool=spool, poll=0.05).replace(**more)
    slurm = RecordedSlurm(settings, version, jobs)
    return SlurmEngine(settings, slurm), slurm
