"""All errors that berth raises deliberately.

```
BerthError
├── InvalidInput          wrong input by a user or a file; says where, what, and what was expected
├── UnknownName           no policy, scenario or utility has this name; suggests near ones
├── UnsupportedProblem    this policy or oracle cannot serve this problem
├── InfeasibleDecision    an infeasible decision where only feasible ones are allowed
├── MissingExtra          an optional dependency is not installed; says how to get it
├── EngineCheckFailed     `berth.testing.check_engine` found broken promises
└── PolicyCheckFailed     `berth.testing.check_policy` found broken promises
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "BerthError",
    "EngineCheckFailed",
    "InfeasibleDecision",
    "InvalidInput",
    "MissingExtra",
    "PolicyCheckFailed",
    "UnknownName",
    "UnsupportedProblem",
    "did_you_mean",
    "did_you_mean_elsewhere",
]


MOST_LISTED = 20
"""Further mistakes that an error lists."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """`; did you mean 'count'?`, or an empty text if no known name is close.

    >>> did_you_mean("prob", ["process", "probability"])
    "; did you mean 'probability'?"
    """
    near = _nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def did_you_mean_elsewhere(name: object, known: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """As `did_you_mean`, or a name of another family that is closer; `elsewhere` has the family of each.

    >>> did_you_mean_elsewhere("esbc", ["drf"], {"escb": "selection"})
    "; did you mean 'escb', of the selection family?"
    """
    own, other = _nearest(name, known), _nearest(name, elsewhere)
    if other is None or (own is not None and _closeness(name, own) >= _closeness(name, other)):
        return did_you_mean(name, known)
    return f"; did you mean {other!r}, of the {elsewhere[other]} family?"


def _closeness(name: object, known: str) -> float:
    return 1.0 if known.startswith(str(name)) else difflib.SequenceMatcher(None, str(name), known).ratio()


def _nearest(name: object, known: Iterable[str]) -> str | None:
    text, names = str(name), sorted(known)
    begun = sorted((one for one in names if len(text) > 2 and one.startswith(text)), key=len)
    near = begun or difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    return near[0] if near else None


class BerthError(Exception):
    """Base class of all errors that berth raises deliberately."""


class InvalidInput(BerthError):
    """Wrong input by a user or a file.

    Gives file, line, key path, the `value` (or a description of what was `found`) and what was expected, as far as
    known. `others` are further mistakes of the same input, each listed on a line of its own.

    >>> print(InvalidInput("a number ≥ 0", value=-4, key="cluster.servers[2].capacity.gpu", file="lab.yaml", line=7))
    lab.yaml:7: cluster.servers[2].capacity.gpu: got -4, expected a number ≥ 0
    """

    def __init__(
        self,
        expected: str,
        *,
        value: object = ...,
        found: str | None = None,
        key: str | None = None,
        file: str | Path | None = None,
        line: int | None = None,
        others: Sequence[InvalidInput] = (),
    ) -> None:
        self.expected, self.value, self.found, self.key = expected, value, found, key
        self.file, self.line, self.others = file, line, tuple(others)
        super().__init__(expected)

    def at(self, *, key: str | None = None, file: str | Path | None = None, line: int | None = None) -> InvalidInput:
        """Copy of this error with a place: a caller that knows the file or an outer key adds it."""
        inner = self.key
        if key and inner:
            inner = f"{key}{inner}" if inner.startswith("[") else f"{key}.{inner}"
        return InvalidInput(
            self.expected,
            value=self.value,
            found=self.found,
            key=inner or key,
            file=self.file or file,
            line=self.line or line,
            others=[other.at(key=key, file=file, line=line) for other in self.others],
        )

    def __str__(self) -> str:
        where = str(self.file) if self.file is not None else ""
        if where and self.line is not None:
            where += f":{self.line}"
        parts = [part for part in (where, self.key) if part]
        shown = self.found if self.found is not None else "" if self.value is ... else repr(self.value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        parts.append(f"got {shown}, expected {self.expected}" if shown else f"expected {self.expected}")
        rest = len(self.others) - MOST_LISTED
        more = [f"and {rest} more mistakes"] if rest > 0 else []
        return "\n".join([": ".join(parts), *map(str, self.others[:MOST_LISTED]), *more])


class UnknownName(BerthError):
    """Unknown name; suggests a close one, then one of another family (`elsewhere`), or else lists all.

    >>> print(UnknownName("policy", "farness", ["fairness", "drf"]))
    unknown policy 'farness'; did you mean 'fairness'?
    >>> print(UnknownName("policy", "best", ["fairness", "drf"]))
    unknown policy 'best' (known: drf, fairness)
    """

    def __init__(self, what: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> None:
        self.what, self.name, self.known = what, name, sorted(known)
        listed = f" (known: {', '.join(self.known)})" if self.known else " (there is none)"
        self.hint = did_you_mean_elsewhere(name, self.known, elsewhere or {}) or listed
        super().__init__(f"unknown {what} {name!r}{self.hint}")


class UnsupportedProblem(BerthError):
    """This policy or oracle cannot serve this problem; the message says why."""


class InfeasibleDecision(BerthError):
    """An infeasible decision where only feasible ones are allowed."""


class MissingExtra(BerthError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'berth-scheduler[{extra}]'")


class PolicyCheckFailed(BerthError):
    """A policy broke one or more promises of `berth.testing.check_policy`; `results` holds the result of each check."""

    def __init__(self, message: str, results: Sequence[Any] = ()) -> None:
        self.results = list(results)
        super().__init__(message)


class EngineCheckFailed(BerthError, AssertionError):
    """An engine broke one or more promises of `berth.testing.check_engine`; `results` holds each result."""

    def __init__(self, message: str, results: Sequence[Any] = ()) -> None:
        self.results = list(results)
        super().__init__(message)
