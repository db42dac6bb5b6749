"""Snapshots of a dispatcher, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from berth.errors import BerthError, InvalidInput
from berth.live.core.records import DumpedState, Outcome

__all__ = ["Dumped", "read_dump", "write_dump"]

MANY = 100
"""Longer lists and tables are written in parts of this length."""


@dataclass(frozen=True)
class Dumped:
    """An immutable snapshot of a dispatcher, from which it can continue."""

    state: DumpedState
    memory: tuple[Outcome, ...] = ()
    refusals: Mapping[str, int] | None = None
    watched: Mapping[str, Any] | None = None


_DUMPED = TypeAdapter(Dumped)


def write_dump(dumped: Dumped) -> bytes:
    """Write a snapshot as JSON, in parts, so that other threads run in between."""
    return b"".join(_written(dumped))


def _written(value: Any) -> Iterator[bytes]:
    if isinstance(value, Dumped | DumpedState):
        yield from _object((one.name, getattr(value, one.name)) for one in fields(value))
    elif isinstance(value, Mapping) and len(value) <= MANY:
        yield from _object(value.items())
    elif isinstance(value, Mapping):
        yield from _joined(b"{}", (_json(dict(some))[1:-1] for some in _some(value.items())))
    elif isinstance(value, list | tuple) and len(value) > MANY:
        yield from _joined(b"[]", (_json(some)[1:-1] for some in _some(value)))
    else:
        yield _json(value)


def _object(items: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    return _joined(b"{}", (b"".join([_json(name), b":", *_written(value)]) for name, value in items))


def _joined(brackets: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield brackets[:1]
    for number, part in enumerate(parts):
        yield b"," + part if number else part
    yield brackets[1:]


def _some(values: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(values)
    while some := list(islice(left, MANY)):
        yield some


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")


def read_dump(text: bytes) -> Dumped:
    """Read a snapshot from JSON."""
    try:
        return _DUMPED.validate_json(text)
    except (ValidationError, BerthError) as error:
        raise InvalidInput("a dump of a dispatcher", found=f"something else ({str(error)[:200]})") from None
