"""Data that the code of commit 87a3ffa wrote and that must load: a journal, a snapshot, a store and result folders.

`python -m tests.frozen.stores DIR` writes such data with the code that runs; it made `tests/data/frozen/87a3ffa`.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.frozen import interface
from tests.frozen.journals import SCENARIOS
from tests.frozen.logs import LOGS
from tests.frozen.plans import EXAMPLES
from tests.frozen.tables import DATA, Case, Key, Outcome

__all__ = ["main", "stores"]

BEFORE = "87a3ffa"
HERE = DATA / BEFORE
SCENARIO = SCENARIOS["failing"]
LOG, POLICIES = "gangs-short", ("easy", "tetris")
PLAN = (EXAMPLES / "rehearse.yaml", {"seeds": [1]}, "completion", 1)


def main(folder: str) -> None:
    """Write the data, small."""
    there = Path(folder)
    there.mkdir(parents=True)
    events = interface.played(SCENARIO.policy, SCENARIO.servers, SCENARIO.given, SCENARIO.setting)
    text = "".join(f"{interface.write_event(event)}\n" for event in events)
    _pack(there / "journal.jsonl", text.encode())
    middle = events[: len(events) // 2]
    _pack(there / "snapshot.json", interface.snapshot(middle, SCENARIO.setting))
    with tempfile.TemporaryDirectory() as scratch:
        interface.write_store(Path(scratch) / "store.sqlite", events, SCENARIO.setting)
        _pack(there / "store.sqlite", (Path(scratch) / "store.sqlite").read_bytes())
    interface.write_replay(LOGS[LOG](), POLICIES, there / "replay")
    for path in (there / "replay" / "plots", there / "replay" / "report.html", there / "replay" / ".lock"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    manifest = there / "replay" / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**facts, "platform": "Linux", "machine": "2 cores"}, indent=2) + "\n")
    interface.write_rehearsal(*PLAN, there / "rehearsal.parquet")


def _pack(path: Path, content: bytes) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, mtime=0))


def _unpacked(name: str) -> bytes:
    return gzip.decompress((HERE / f"{name}.gz").read_bytes())


def stores() -> Iterator[Case]:
    """What each file says after it was loaded."""
    for read in (_journal, _snapshot, _store, _replay, _rehearsal):
        yield Case(Key(BEFORE, read.__name__.strip("_"), "loaded"), partial(_read, read.__name__))


def _read(name: str) -> Outcome:
    return Outcome(list(globals()[name]()), f"written by {BEFORE}")


def _journal() -> Iterator[str]:
    events = [interface.read_event(line) for line in _unpacked("journal.jsonl").splitlines()]
    yield from interface.decisions(events)
    yield from interface.restored(None, events, SCENARIO.setting)


def _snapshot() -> Iterator[str]:
    """The state of the snapshot, and after the rest of the journal."""
    events = [interface.read_event(line) for line in _unpacked("journal.jsonl").splitlines()]
    dumped = _unpacked("snapshot.json")
    yield from interface.restored(dumped, [], SCENARIO.setting)
    yield from interface.restored(dumped, events[len(events) // 2 :], SCENARIO.setting)


def _store() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store.sqlite"
        path.write_bytes(_unpacked("store.sqlite"))
        yield from interface.read_store(path, SCENARIO.setting)


def _replay() -> Iterator[str]:
    """A replay that goes on in the folder gives the numbers that are there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "replay"
        shutil.copytree(HERE / "replay", folder)
        before = json.loads((folder / "summary.json").read_text())
        after = interface.continue_replay(LOGS[LOG](), POLICIES, folder)
    for old, new in zip(before, after, strict=True):
        same = {name: value for name, value in old.items() if new.get(name) == value or name == "simulation_seconds"}
        assert same == old, f"{old} is now {new}"
        yield from (f"{old['policy']} {name} {value!r}" for name, value in same.items() if name != "simulation_seconds")


def _rehearsal() -> Iterator[str]:
    yield from map(repr, interface.read_rehearsal(HERE / "rehearsal.parquet"))


if __name__ == "__main__":
    main(sys.argv[1])
