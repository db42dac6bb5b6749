"""Jobs that users submit to an engine itself have names that nobody can take before them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from berth.live.core.events import Cancel, Command, Event, Submitted
from berth.live.core.jobs import Job, Role
from berth.live.engines import Snapshot
from berth.live.service import scheduler as module
from berth.live.service.rounds import Submission
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store, Token
from berth.live.service.tokens import digest, new_secret
from tests.harness.waiting import eventually_async
from tests.live.service.live import serving

FOREIGN = ["slurm-17-1700000000", "kubernetes-team-a-train-0123456789ab"]


def test_no_user_can_take_the_name_of_a_job_of_slurm_or_kubernetes(tmp_path: Path) -> None:
    store, secrets = Store(str(tmp_path / "berth.db")), {}
    for who in ("ann", "bob"):
        secrets[who] = new_secret()
        store.add_token(Token(who, digest(secrets[who]), "submit", who, time.time()))
    store.close()
    spec = {"resources": {"cpu": 1}, "work": "1h"}
    with serving(tmp_path) as live:
        for who in ("ann", "bob"):
            for name in FOREIGN:
                with pytest.raises(HTTPError) as refused:
                    live.ask("POST", "/v1/jobs", [spec, {**spec, "name": name}], token=secrets[who])
                engine = name.partition("-")[0]
                with refused.value as answer:
                    assert answer.code == 422
                    said = answer.read().decode()
                assert f"berth gives such names to jobs that users submit to {engine} itself" in said
        live.ask("POST", "/v1/jobs", {**spec, "name": "slurm-like"}, token=secrets["ann"])
        assert [job["id"] for job in live.ask("GET", "/v1/jobs", token=secrets["bob"])["jobs"]] == ["slurm-like"]


def job(name: str, user: str, origin: str = "") -> Job:
    return Job(name, "t", (Role("w", 1, {"cpu": 1000}),), user=user, origin=origin)


class Offering:
    """An engine at which jobs of users wait."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.told: asyncio.Queue[Event] = asyncio.Queue()

    async def snapshot(self) -> Snapshot:
        return Snapshot(())

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self.told.get()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        self.commands.append(command)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_job_that_waits_at_the_engine_is_not_cancelled_for_one_of_another_with_its_name(
    cancelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of an older version may have such a job: then names were not refused."""

    async def run() -> None:
        engine = Offering()
        monkeypatch.setattr(module, "make_engine", lambda *_: engine)
        scheduler = await Scheduler.open(ServiceSettings(store=str(tmp_path / "db"), tick=0.05))
        try:
            taken, theirs, later = (
                job("slurm-7-1", "ann"),
                job("slurm-7-1", "bob", "slurm"),
                job("slurm-8-1", "bob", "slurm"),
            )
            given = Submission.of([taken], "", None)
            await scheduler._journal.ask_in_steps(lambda round_: round_.submit(given), given)
            if cancelled:
                await scheduler.cancel("slurm-7-1", "ann")
            for one in (theirs, later):
                engine.told.put_nowait(Submitted(0.0, one))
            await eventually_async(lambda: "slurm-8-1" in scheduler.dispatcher.state.jobs)
            await scheduler.cancel("slurm-8-1", "bob")  # commands are executed in order
            found: list[Any] = await eventually_async(lambda: engine.commands)
            assert found == [Cancel("slurm-8-1", 0)]
            record = await scheduler.get("slurm-7-1")
            assert record is not None
            assert (record.job.user, record.phase) == ("ann", "cancelled" if cancelled else "waiting")
        finally:
            await scheduler.close()

    asyncio.run(run())
