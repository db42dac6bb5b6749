"""The printed training in torch: its memory fills, its networks move, and its state resumes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from berth.families.placement.training.ddpg import AHEAD, DDPG, LOOK
from berth.families.placement.training.episodes import Source
from berth.random import stream
from tests.families.placement.training.small import small_world


@pytest.mark.parametrize("direct", [False, True])
def test_ddpg_fills_its_memory_and_moves(direct: bool) -> None:
    source = Source([small_world])
    learner = DDPG(small_world(0).problem, most=20, direct=direct)
    before = [part.clone() for part in learner.actor_target.parameters()]
    rng = stream(0, "ddpg")
    while learner.kept < LOOK + 1:
        assert math.isfinite(learner.step(source.some(int(rng.integers(1000)), 4), rng))
    learner.step(source.some(0, 4), rng)
    after = list(learner.actor_target.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    state, action, reward, later = (part[0].numpy().astype(np.float64) for part in learner.memory)
    assert state.shape == later.shape == (learner.size,)
    assert action.shape == (20,)
    assert reward[0] > sum(0.9**k for k in range(AHEAD)) * 0.5  # ratios of growing sums are about 1
    again = DDPG(small_world(0).problem, most=20, direct=direct)
    again.restore(learner.state())
    assert np.array_equal(again.act(state), learner.act(state))
    assert learner.frozen({})(state) == pytest.approx(learner.act(state), abs=1e-5)
