"""Amounts in Kubernetes' notation."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.live.engines.kubernetes.quantities import LARGEST, read_amount, unit_of

SIZES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4}
NUMBERS = st.decimals(0, 1000, places=3)


@given(NUMBERS, st.sampled_from([*SIZES, *BINARY]))
def test_every_suffix_is_exact(number: Decimal, suffix: str) -> None:
    size = Fraction(10) ** SIZES[suffix] if suffix in SIZES else Fraction(1024) ** BINARY[suffix]
    exact = Fraction(number) * size
    whole = -(-exact.numerator // exact.denominator)
    milli = -((-1000 * exact.numerator) // exact.denominator)
    assert read_amount("memory", f"{number}{suffix}") == 1000 * whole
    assert read_amount("cpu", f"{number}{suffix}") == milli


@given(NUMBERS, st.integers(-3, 9), st.sampled_from("eE"))
def test_exponents_are_exact(number: Decimal, exponent: int, e: str) -> None:
    exact = 1000 * Fraction(number) * Fraction(10) ** exponent
    assert read_amount("cpu", f"{number}{e}{exponent}") == -(-exact.numerator // exact.denominator)


@pytest.mark.parametrize(
    ("value", "milli"),
    [("250m", 250), ("1Gi", 2**30 * 1000), ("1e3", 10**6), (2, 2000), (0.1, 100), ("1E", None), ("+5", 5000)],
)
def test_examples(value: object, milli: int | None) -> None:
    if milli is None:
        with pytest.raises(InvalidInput, match="at most"):
            read_amount("cpu", value)
    else:
        assert read_amount("cpu", value) == milli


@pytest.mark.parametrize("value", ["-1", "", "Gi", "1.2.3", "1 Gi", "0x1", "1gi", "1e", "1e999", True, None, [1], "٣"])
def test_other_texts_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"spec\.cpu: .*a Kubernetes quantity such as"):
        read_amount("cpu", value, "spec.cpu")


def test_units() -> None:
    assert unit_of("cpu", 2000) == 1
    assert unit_of("memory", 2**30 * 1000) == 2**20 * 1000
    assert unit_of("memory", 500_000) == 1000
    assert unit_of("hugepages-2Mi", 2**30 * 1000) == 2**21 * 1000
    assert unit_of("nvidia.com/gpu", 8000) == 1000
    assert read_amount("memory", "1024Ti") == LARGEST
