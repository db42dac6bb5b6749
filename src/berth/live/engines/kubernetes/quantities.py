"""Amounts of resources in Kubernetes' notation, exact, in whole thousandths as everywhere in berth.

As the Kubernetes scheduler does, CPU is rounded up to a thousandth and every other resource to a whole unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from berth.errors import InvalidInput
from berth.files.quantities import MILLI, SUFFIXES

__all__ = ["LARGEST", "is_bytes", "read_amount", "read_amounts", "unit_of"]

LARGEST = 2**50 * MILLI
"""Largest amount in thousandths: 1 PiB."""
ALL_SUFFIXES = {
    **SUFFIXES,
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "E": Fraction(10**18),
    "Ei": Fraction(1024**6),
}
QUANTITY = re.compile(r"\+?(\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:([a-zA-Z]{0,2})|[eE]([+-]?\d{1,2}))", re.ASCII)
HUGE_PAGES = "hugepages-"
MEBI = 2**20 * MILLI


def read_amount(name: str, value: object, key: str = "") -> int:
    """Read an amount of a resource in thousandths.

    >>> read_amount("cpu", "250m"), read_amount("memory", "1Gi"), read_amount("pods", "1e2"), read_amount("cpu", 0.1)
    (250, 1073741824000, 100000, 100)
    >>> read_amount("cpu", "100u"), read_amount("memory", "1500m")  # rounded up
    (1, 2000)
    >>> read_amount("cpu", "-1", "requests.cpu")
    Traceback (most recent call last):
    berth.errors.InvalidInput: requests.cpu: got '-1', expected a Kubernetes quantity such as 250m, 4, 16Gi or 1e3
    """
    expected, where = "a Kubernetes quantity such as 250m, 4, 16Gi or 1e3", key or name
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(expected, value=value, key=where)
    match = QUANTITY.fullmatch(value if isinstance(value, str) else repr(value))
    if match is None or (match[2] or "") not in ALL_SUFFIXES:
        raise InvalidInput(expected, value=value, key=where)
    exact = Fraction(match[1]) * (Fraction(10) ** int(match[3]) if match[3] else ALL_SUFFIXES[match[2]])
    milli = -(-exact * MILLI // 1) if name == "cpu" else -(-exact // 1) * MILLI
    if milli > LARGEST:
        raise InvalidInput(f"an amount of at most {LARGEST // MILLI} (2^50)", value=value, key=where)
    return int(milli)


def read_amounts(given: Mapping[str, object]) -> dict[str, int]:
    """Read amounts by resource; zero amounts are left out.

    >>> read_amounts({"cpu": "500m", "nvidia.com/gpu": "0"})
    {'cpu': 500}
    """
    found = {str(name): read_amount(str(name), value) for name, value in given.items()}
    return {name: milli for name, milli in found.items() if milli}


def is_bytes(name: str) -> bool:
    """Whether a resource is counted in bytes."""
    return name in ("memory", "ephemeral-storage") or name.startswith(HUGE_PAGES)


def unit_of(name: str, asked: int) -> int:
    """The step in which a smaller amount of a resource is suggested, in thousandths.

    It is 1m of CPU, 1Mi of memory and storage (a byte if less was asked for), a page of huge pages, else 1.
    """
    if name.startswith(HUGE_PAGES):
        return read_amount("memory", name.removeprefix(HUGE_PAGES), name)
    if name == "cpu":
        return 1
    return MEBI if is_bytes(name) and asked >= MEBI else MILLI
