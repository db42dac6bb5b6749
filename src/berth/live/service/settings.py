"""How a scheduler is set up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from berth.errors import InvalidInput
from berth.live.core.queues import Queues

__all__ = ["ServiceSettings"]


@dataclass(frozen=True)
class ServiceSettings:
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
    queues: Queues | None = None
    seed: int = 0
    budget: float = 1.0
    faster: float = 1.0
    tick: float = 1.0
    soon: float = 0.02
    snapshot_every: int = 20_000
    retention: float | None = None
    engine_state: str | None = None
    learn_by: str | None = None
    show_commands: bool = False
    open: bool = False

    def __post_init__(self) -> None:
        for name, low in (("budget", 0.0), ("faster", 1e-6), ("tick", 1e-3), ("soon", 0.0), ("retention", 0.0)):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= low):
                raise InvalidInput(f"a finite number ≥ {low:g}", value=value, key=name)
        if self.snapshot_every < 1:
            raise InvalidInput("a number ≥ 1", value=self.snapshot_every, key="snapshot_every")

    @property
    def guarded(self) -> bool:
        """Whether the service demands a token from the first start on; on a simulated cluster there is no harm."""
        return not self.open and self.engine.partition(":")[0] != "simulated"
