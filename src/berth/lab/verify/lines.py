"""Published numbers beside berth's own, and the rule by which they agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Check", "Line", "Progress"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Line:
    """A published number beside ours; `error` is the standard error of their difference, if it has one.

    `note` says what is known of the number beyond that. With `rival` the published number is that of another method,
    on the same jobs, and the lower number is the better one.
    """

    where: str
    what: str
    theirs: float | None
    ours: float
    digits: int = 2
    error: float | None = None
    note: str = ""
    rival: bool = False

    @property
    def verdict(self) -> str:
        """Equal to the printed digits, within two standard errors, or different; of a rival, ahead or behind."""
        if self.theirs is None:
            return "not published"
        if round(self.ours, self.digits) == round(self.theirs, self.digits):
            return "equal"
        if self.error is not None and abs(self.ours - self.theirs) <= 2 * self.error:
            return "within two standard errors"
        if self.rival:
            return "ahead" if self.ours < self.theirs else "behind"
        return "different"

    def as_dict(self) -> dict[str, Any]:
        """The line as a dictionary, for JSON."""
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Check:
    """A published result: what it is, where it was published, the files it needs, and how it is computed."""

    title: str
    source: str
    protocol: str
    files: tuple[str, ...]
    lines: Callable[[Path, Progress], list[Line]]
    remark: str = ""
    """What follows from it."""
    optional: bool = False
    """Whether a run without names skips it when its files are missing."""
