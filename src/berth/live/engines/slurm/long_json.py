"""Read JSON that has a long list, element by element.

`json.loads` keeps all threads of Python from running until it returns, which takes a second where Slurm has 10,000
jobs. Elements are short, so other threads run in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["loads"]

_decode = json.JSONDecoder().raw_decode
_spaces = re.compile(r"[ \t\n\r]*")


def loads(text: str, **lists: Callable[[Any], Any]) -> Any:
    """Like `json.loads`; in an object, each element of these lists is replaced by what its function returns.

    >>> loads('{"jobs": [1, 2], "errors": [3]}', jobs=str)
    {'jobs': ['1', '2'], 'errors': [3]}
    """
    reader = _Reader(text)
    if not reader.finds("{"):
        return json.loads(text)
    found: dict[str, Any] = {}
    for _ in reader.items("}"):
        name = reader.name()
        reader.expect(":")
        if name in lists and reader.finds("["):
            found[name] = [lists[name](reader.value()) for _ in reader.items("]")]
        else:
            found[name] = reader.value()
    reader.expect("")
    return found


class _Reader:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def _skip_spaces(self) -> None:
        match = _spaces.match(self._text, self._at)
        self._at = self._at if match is None else match.end()

    def finds(self, sign: str) -> bool:
        """Whether this sign is next, after spaces; if so, go past it. No sign is the end of the text."""
        self._skip_spaces()
        if self._text[self._at : self._at + 1] != sign:
            return False
        self._at += len(sign)
        return True

    def expect(self, sign: str) -> None:
        if not self.finds(sign):
            raise json.JSONDecodeError(f"Expecting {sign!r}", self._text, self._at)

    def value(self) -> Any:
        self._skip_spaces()
        value, self._at = _decode(self._text, self._at)
        return value

    def name(self) -> str:
        """The name of a field."""
        if not isinstance(name := self.value(), str):
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self._text, self._at)
        return name

    def items(self, end: str) -> Iterator[None]:
        """Stop at each item up to this sign; the caller reads it."""
        if self.finds(end):
            return
        yield
        while self.finds(","):
            yield
        self.expect(end)
