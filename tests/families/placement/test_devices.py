"""Devices that tasks share: how many pieces have room, and who gets what, against trying it out."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement.kernels.gathering import hold_all, room
from berth.kernels.compiled import lean
from tests.harness.examples import examples
from tests.reference import gathering as plain

quarters = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=4)
share = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0])


@lean
def _room(free: Any, share: float) -> Any:
    return room(free, 0, share)


@examples(200)
@given(quarters, share)
def test_room_is_what_can_be_put_there(free: list[float], wanted: float) -> None:
    found = _room(np.array([free]), wanted)
    if wanted == 0:
        assert found > 1_000_000  # as many as one likes
    else:
        assert found == plain.room(plain.Server([99.0], list(free)), (wanted,), 0, 99)


@examples(200)
@given(quarters, st.lists(st.tuples(share, st.integers(1, 3)), max_size=5))
def test_pieces_are_held_in_turn(free: list[float], rows: list[tuple[float, int]]) -> None:
    server = plain.Server([99.0], list(free))
    expected = []
    for wanted, count in rows:
        before = list(server.devices)
        for _ in range(count):
            plain.put(server, (wanted,), 0)
        expected.append([was - now for was, now in zip(before, server.devices, strict=True)])
    left, held = np.array([free]), np.zeros((len(rows), len(free)))
    hold_all(
        np.zeros(len(rows), dtype=np.int64),
        np.array([wanted for wanted, _ in rows]),
        np.array([count for _, count in rows], dtype=np.int64),
        left,
        held,
    )
    assert held.tolist() == expected
    assert left[0].tolist() == server.devices


def test_thirds_and_tenths_fill_a_device() -> None:
    for parts in (3, 7, 10):
        left, held = np.ones((1, 1)), np.zeros((1, 1))
        assert _room(left, 1 / parts) == parts
        hold_all(np.zeros(1, np.int64), np.array([1 / parts]), np.array([parts]), left, held)
        assert abs(held[0, 0] - 1.0) < 1e-12
        assert _room(left, 0.01) == 0
