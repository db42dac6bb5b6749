"""A simulated cluster behind an engine of another name, so that the service follows the system clock, and a command
that serves it: `python -m tests.live.service.wall_engine serve --engine wall …`."""

from __future__ import annotations

import sys
from pathlib import Path

from berth.cli import main
from berth.live.engines import EngineKind, Owner, registry
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster

__all__ = ["ENGINE", "NAME", "WHERE"]

NAME, WHERE = "wall", "tests.live.service.wall_engine:ENGINE"


def _make(settings: object, clock: Clock, state_file: Path | None, owner: Owner | None) -> SimulatedEngine:
    return SimulatedEngine(example_cluster(), Clock(), state_file)


ENGINE = EngineKind(lambda rest: rest, _make)

if __name__ == "__main__":
    registry.BUILTIN[NAME] = WHERE
    sys.exit(main(sys.argv[1:]))
