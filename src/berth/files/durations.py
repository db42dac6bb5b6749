"""Durations as people and Slurm write them, in seconds."""

from __future__ import annotations

import math
import re

from berth.errors import InvalidInput

__all__ = ["CLOCK", "clock_seconds", "parse_duration"]

CLOCK = r"^(?:(\d+)-)?(\d+)(?::(\d+(?:\.\d+)?))?(?::(\d+(?:\.\d+)?))?$"
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"(\d{1,12}(?:\.\d{0,6})?)(ms|s|m|h|d)", re.ASCII)
LONGEST = 10 * 365 * 86400.0


def clock_seconds(text: str) -> float | None:
    """Seconds of `days-hours:minutes:seconds`, `hours:minutes:seconds`, `minutes:seconds` or a number of minutes.

    None where the text has another form. Minutes and seconds may be left out after days; seconds may have a fraction.

    >>> clock_seconds("1-02:03:04"), clock_seconds("05:30"), clock_seconds("2-12"), clock_seconds("soon")
    (93784.0, 330.0, 216000.0, None)
    """
    match = re.fullmatch(CLOCK, text, re.ASCII)
    if not match or ("." in (match[3] or "") and (match[1] or match[4])):  # only seconds have fractions
        return None
    days, first, second, third = (None if part is None else float(part) for part in match.groups())
    if days is not None or third is not None:
        return 86400 * (days or 0) + 3600 * (first or 0) + 60 * (second or 0) + (third or 0)
    return 60 * (first or 0) + (second or 0)


def parse_duration(value: object, key: str = "duration") -> float:
    """A duration in seconds.

    >>> parse_duration("15m"), parse_duration("1-12:00:00"), parse_duration("1:30:00"), parse_duration(2.5)
    (900.0, 129600.0, 5400.0, 2.5)
    >>> parse_duration("soon", key="estimate")
    Traceback (most recent call last):
    berth.errors.InvalidInput: estimate: got 'soon', expected a duration such as 90s, 15m, 2h, 1-12:00:00 or ...
    """
    expected = "a duration such as 90s, 15m, 2h, 1-12:00:00 or a number of seconds"
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        number = value.strip()[:12]
        raise InvalidInput(f"a duration with its unit, such as {number}s, {number}m or {number}h", value=value, key=key)
    seconds: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        text = value.strip()
        if match := SPAN.fullmatch(text):
            seconds = float(match[1]) * UNITS[match[2]]
        elif not re.search(r":([6-9]\d|\d{3})", text):
            seconds = clock_seconds(text)
    if seconds is None or not (math.isfinite(seconds) and 0 <= seconds <= LONGEST):
        raise InvalidInput(expected, value=value, key=key)
    return seconds
