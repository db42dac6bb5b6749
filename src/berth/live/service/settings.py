"""How a scheduler is set up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, InstanceOf

from berth.files.wording import Part, Switch, by
from berth.live.core.queues import Queues
from berth.live.service.views import QueuesSpec

__all__ = ["Settings"]


def _queues(value: object) -> object:
    return value if isinstance(value, Queues | None) else QueuesSpec.model_validate(value).queues_()


class Settings(Part):
    """What `Scheduler.open` needs.

    `store` is the path of an SQLite file or `postgresql://…`; `engine` is where jobs run (`berth.live.engines`).
    `policy` and `queues` left out are what they were, or the defaults in a new store. `faster` is how many seconds of
    the clock pass in one. A decision is made every `tick` seconds, and `soon` after something happened. A snapshot is
    written every `snapshot_every` events. Of the journal all is kept, or what is younger than `retention` seconds.
    `engine_state` is a file in which a simulated engine remembers what runs. What is learned of a server is learned of
    all with the same value of the label `learn_by`. With `show_commands`, every reader sees the commands of all jobs.
    A service with a real engine and no token makes one for its own user, unless it is `open` to all local users.
    """

    store: str = "berth.db"
    engine: str = "simulated"
    policy: str | None = None
    queues: Annotated[InstanceOf[Queues] | None, by(_queues)] = None
    seed: int = 0
    budget: Annotated[float, Field(ge=0)] = 1.0
    faster: Annotated[float, Field(ge=1e-6)] = 1.0
    tick: Annotated[float, Field(ge=1e-3)] = 1.0
    soon: Annotated[float, Field(ge=0)] = 0.02
    snapshot_every: Annotated[int, Field(ge=1)] = 20_000
    retention: Annotated[float, Field(ge=0)] | None = None
    engine_state: str | None = None
    learn_by: str | None = None
    show_commands: Switch = False
    open: Switch = False

    @property
    def guarded(self) -> bool:
        """Whether the service demands a token from the first start on; on a simulated cluster there is no harm."""
        return not self.open and self.engine.partition(":")[0] != "simulated"
