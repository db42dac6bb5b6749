"""Quantities are read and written exactly."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.files.quantities import MOST, amounts, format_quantity, parse_quantity, slurm_amounts


@given(st.integers(0, MOST))
def test_written_and_read_again(milli: int) -> None:
    assert parse_quantity(format_quantity(milli)) == milli


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        ("1.5", 1500),
        (".5", 500),
        ("100m", 100),
        ("1k", 10**6),
        ("1Ki", 1024_000),
        ("2Gi", 2 * 2**30 * 1000),
    ],
)
def test_as_kubernetes_writes(text: str, milli: int) -> None:
    assert parse_quantity(text) == milli


@pytest.mark.parametrize(
    "value",
    ["-1", "1e3", "nan", "inf", "", "Gi", "1.0001", "1 Gi", "0x10", True, None, [1], -2, 1e30, "9P", "٣"],
)
def test_nonsense_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"resources\.cpu"):
        amounts({"cpu": value})


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=1,cpu=2", "cpu=x", ""])
def test_bad_slurm_lists(text: str) -> None:
    with pytest.raises(InvalidInput):
        slurm_amounts(text)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert parse_quantity(text) >= 0
