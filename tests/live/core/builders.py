"""Short ways to write servers, jobs and what happens to them."""

from __future__ import annotations

from typing import Any

from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers.wrappers import Wrapper
from berth.live.core.events import Decided, ServerJoined, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.core.records import Handled
from berth.live.core.state import State

__all__ = ["begin", "begun", "dispatcher", "innermost", "job", "places", "server", "snapshot", "started"]


def server(name: str, cpu: float = 4, gpu: float = 0, speed: float = 1.0, **labels: str) -> Server:
    return Server(name, amounts({"cpu": cpu, "gpu": gpu}), labels, speed)


def job(name: str, cpu: float = 1, count: int = 1, *, gpu: float = 0, minimum: int = -1, **more: Any) -> Job:
    roles = (Role("main", count, amounts({"cpu": cpu, "gpu": gpu}), minimum),)
    return Job(name, more.pop("type", "t"), more.pop("roles", roles), **more)


def dispatcher(*servers: Server, policy: str = "in-order-best-fit", **settings: Any) -> Dispatcher:
    made = Dispatcher(policy, **settings)
    for each in servers:
        made.handle(ServerJoined(0.0, each))
    return made


def begin(made: Dispatcher, time: float, *jobs: Job) -> Decided | None:
    """Submit these, decide, and take the decision; all that start are told to run."""
    for each in jobs:
        made.handle(Submitted(time, each))
    decided = made.decide(time)
    if decided is not None:
        made.handle(decided)
        for start in decided.starts:
            made.handle(Started(time, start.job, start.attempt))
    return decided


def started(decided: Decided | None) -> list[str]:
    """Who starts."""
    return [] if decided is None else [start.job for start in decided.starts]


def begun(made: Dispatcher, name: str, *where: Place, attempt: int = 1, time: float = 0.0) -> Handled:
    """Take a decision that starts one job there."""
    return made.handle(Decided(time, "somebody", (Start(name, attempt, where),)))


def innermost(driver: Any) -> Any:
    """The policy's driver, without its wrappers."""
    return innermost(driver.policy) if isinstance(driver, Wrapper) else driver


def places(made: Dispatcher, name: str) -> dict[str, int]:
    """How many tasks a job has on each server."""
    found: dict[str, int] = {}
    for place in made.state.jobs[name].places:
        found[place.server] = found.get(place.server, 0) + place.count
    return found


def snapshot(state: State) -> dict[str, object]:
    """All that a state remembers, to be compared."""
    hidden = {"time", "capacity", "used", "taken", "learned", "foresight", "fits", "table"}
    hidden |= {"_whole", "_known", "usable", "until", "speed"}
    kept = {name: value for name, value in vars(state).items() if name not in hidden}
    return {
        **{name: dict(value) if isinstance(value, dict) else value for name, value in kept.items()},
        "refusals": state.refusals.copied(),
        "held": {owner: dict(held) for owner, held in state.held.items()},
        "on": {name: set(jobs) for name, jobs in state.on.items()},
        "used": state.used.tolist(),
        "taken": state.taken.tolist(),
        "capacity": state.capacity.tolist(),
        "usable": state.usable.tolist(),
        "until": state.until.tolist(),
        "speed": state.speed.tolist(),
        "learned": state.learned.dump(),
        "foresight": state.foresight.dump(),
        "calibration": state.calibration.dump(),
    }
