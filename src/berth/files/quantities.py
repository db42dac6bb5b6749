"""Parse and format amounts of resources, kept exactly as whole thousandths, and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from berth.errors import InvalidInput

__all__ = [
    "CLOCK",
    "MILLI",
    "Amounts",
    "amounts",
    "clock_seconds",
    "format_amounts",
    "format_quantity",
    "parse_duration",
    "parse_quantity",
    "slurm_amounts",
]

MILLI = 1000
"""Thousandths in one unit."""
MOST = 2**53
"""Largest number of thousandths: floats, which policies compute with, are exact up to here."""

Amounts = Mapping[str, int]
"""Amounts by resource name, in thousandths; a resource that is not named has 0."""

BINARY = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5}
DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
SUFFIXES = {"m": Fraction(1, 1000), **{name: Fraction(size) for name, size in {**BINARY, **DECIMAL}.items()}}
QUANTITY = re.compile(r"\+?(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})([A-Za-z]{0,2})", re.ASCII)
NAME = re.compile(r"[A-Za-z][A-Za-z0-9._/:-]{0,62}", re.ASCII)
SLURM_NAMES = {"mem": "memory", "gres/gpu": "gpu"}


def parse_quantity(value: object, key: str = "quantity") -> int:
    """Parse a quantity into thousandths.

    >>> parse_quantity("500m"), parse_quantity("16Gi"), parse_quantity(2), parse_quantity("0.25")
    (500, 17179869184000, 2000, 250)
    >>> parse_quantity("-1", key="cpu")
    Traceback (most recent call last):
    berth.errors.InvalidInput: cpu: got '-1', expected a quantity such as 2, 500m or 16Gi
    """
    expected = "a quantity such as 2, 500m or 16Gi"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(expected, value=value, key=key)
    exact = _thousandths(value.strip() if isinstance(value, str) else repr(value))
    if exact is None:
        raise InvalidInput(expected, value=value, key=key)
    if exact.denominator != 1:
        raise InvalidInput("a quantity in whole thousandths", value=value, key=key)
    if exact > MOST:
        raise InvalidInput(f"a quantity of at most {format_quantity(MOST)}", value=value, key=key)
    return int(exact)


@lru_cache(maxsize=4096)
def _thousandths(text: str) -> Fraction | None:
    """A quantity in thousandths; None if the text is none."""
    match = QUANTITY.fullmatch(text)
    return None if match is None or match[2] not in SUFFIXES else Fraction(match[1]) * SUFFIXES[match[2]] * MILLI


def format_quantity(milli: int) -> str:
    """Write a quantity in its shortest exact form that is easy to read.

    >>> format_quantity(500), format_quantity(2000), format_quantity(17179869184000)
    ('500m', '2', '16Gi')
    """
    if milli % MILLI:
        return f"{milli}m"
    whole = milli // MILLI
    for suffix, size in reversed(BINARY.items()):
        if whole and whole % size == 0:
            return f"{whole // size}{suffix}"
    return str(whole)


def amounts(given: Mapping[str, object], key: str = "resources") -> dict[str, int]:
    """Parse amounts by resource; zero amounts are left out.

    >>> amounts({"cpu": "500m", "memory": "1Gi", "gpu": 0})
    {'cpu': 500, 'memory': 1073741824000}
    """
    found = {}
    for name, value in given.items():
        if not NAME.fullmatch(name):
            raise InvalidInput("the name of a resource: a letter, then letters, digits, . _ / : -", value=name, key=key)
        if milli := parse_quantity(value, f"{key}.{name}"):
            found[name] = milli
    return found


def format_amounts(given: Amounts) -> dict[str, str]:
    """Format amounts by resource.

    >>> format_amounts({"cpu": 500, "gpu": 2000})
    {'cpu': '500m', 'gpu': '2'}
    """
    return {name: format_quantity(milli) for name, milli in given.items()}


def slurm_amounts(text: str, key: str = "resources") -> dict[str, int]:
    """Parse amounts in Slurm's notation, where `M`, `G` and `T` of memory are powers of 1024.

    >>> slurm_amounts("cpu=4,mem=16G,gres/gpu=2")
    {'cpu': 4000, 'memory': 17179869184000, 'gpu': 2000}
    """
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise InvalidInput("name=amount, such as cpu=4,mem=16G,gres/gpu=2", value=part, key=key)
        plain = SLURM_NAMES.get(name, name.removeprefix("gres/"))
        if plain in found:
            raise InvalidInput("each resource once", value=name, key=key)
        binary = plain == "memory" and value[-1:] in ("K", "M", "G", "T", "P")
        found[plain] = f"{value}i" if binary else value
    return amounts(found, key)


CLOCK = r"^(?:(\d+)-)?(\d+)(?::(\d+(?:\.\d+)?))?(?::(\d+(?:\.\d+)?))?$"
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"(\d{1,12}(?:\.\d{0,6})?)(ms|s|m|h|d)", re.ASCII)
LONGEST = 10 * 365 * 86400.0


def clock_seconds(text: str) -> float | None:
    """Parse `days-hours:minutes:seconds`, `hours:minutes:seconds`, `minutes:seconds` or minutes into seconds.

    None for any other form. Minutes and seconds may be left out after days; seconds may have a fraction.

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
    """Parse a duration into seconds.

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
