"""Named random streams."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.random import stream

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS, st.lists(st.text(max_size=8) | st.integers(), max_size=3))
def test_same_seed_and_name_same_draws(seed: int, names: list[str | int]) -> None:
    assert np.array_equal(stream(seed, *names).random(4), stream(seed, *names).random(4))


def test_streams_of_different_names_and_seeds_differ() -> None:
    keys: list[tuple[int, tuple[str | int, ...]]] = [
        (seed, names)
        for seed in (0, 1, 2, 2**32, 2**40)
        for names in ((), ("a",), ("b",), ("a", "b"), ("ab",), ("b", "a"), ("a", 1), ("a", 11), ("a", 1, 1))
    ]
    assert len({tuple(stream(seed, *names).integers(0, 2**62, 3).tolist()) for seed, names in keys}) == len(keys)


def test_drawing_from_one_stream_shifts_no_other() -> None:
    alone = stream(3, "arrivals").random(5)
    instance, arrivals = stream(3, "instance"), stream(3, "arrivals")
    drawn = []
    for _ in range(5):
        instance.random(7)
        drawn.append(arrivals.random())
    assert np.array_equal(alone, drawn)


def test_streams_are_not_correlated() -> None:
    draws = np.array([stream(0, "port", index).standard_normal(2000) for index in range(12)])
    correlations = np.corrcoef(draws)[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 0.1


def test_streams_never_change() -> None:
    """Recorded runs can only be repeated while these stay as they are."""
    assert stream(7, "arrivals").integers(0, 1000, 4).tolist() == [320, 883, 300, 435]
    assert stream(7, "arrivals", 3).integers(0, 1000, 4).tolist() == [781, 851, 51, 604]
