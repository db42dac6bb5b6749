"""All that an engine's own package has to test: that it keeps the promises, and that its settings are checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from berth_example_engine import ENGINE

from berth.errors import InvalidInput
from berth.live.engines import Clock, Engine, Job, Role
from berth.testing import Ledger, Script, Sighting, Site, check_engine


class LocalSite(Site):
    """Tasks write into a folder that they began; jobs end with the engine."""

    short = 0.5
    another_process = False

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder)

    async def engine(self) -> Engine:
        return ENGINE.make(ENGINE.settings("6x4"), Clock(), None, None)

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        return self.ledger.job(id, roles, script)

    async def begun(self) -> Sequence[Sighting]:
        return self.ledger.begun()


def test_keeps_every_promise(tmp_path: Path) -> None:
    results = check_engine(LocalSite(tmp_path))
    not_tried = {result.check for result in results if result.not_tried}
    assert not_tried == {
        "cancelled-behind-our-back",
        "goes-on-with-a-new-driver",
        "leaves-jobs-running",
        "survives-the-other-side",
        "survives-lost-servers",
    }


def test_settings_are_checked() -> None:
    assert list(ENGINE.settings("2x1")) == ["local-0", "local-1"]
    with pytest.raises(InvalidInput, match="got 'many', expected servers x cpus"):
        ENGINE.settings("many")
