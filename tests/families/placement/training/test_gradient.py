"""Policy gradients: the network in torch is that of the kernel, and its likelihoods are right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from berth.errors import BerthError
from berth.families.placement.kernels.network import CLUSTER, TASK, infer
from berth.families.placement.policies.network import Network
from berth.families.placement.training.ddpg import AHEAD, DDPG, LOOK
from berth.families.placement.training.episodes import Source, run_network, tape_of
from berth.families.placement.training.evolution import mean_gain
from berth.families.placement.training.gradient import PolicyGradient, Shown
from berth.random import stream
from tests.families.placement.training.small import poor_network, small_world


def some_network(looks: int, seed: int = 0) -> Network:
    rng = stream(seed, "network")
    fresh = Network.fresh(rng, 5, looks)
    return fresh.replace(fresh.weights + 0.5 * rng.standard_normal(fresh.weights.size))


@pytest.mark.parametrize("looks", [0, 3])
def test_the_network_in_torch_is_that_of_the_kernel(looks: int) -> None:
    network, rng = some_network(looks), stream(1, "features")
    scratch, size = network.scratch(6), 6
    scratch.features[:] = rng.standard_normal((size, TASK))
    scratch.cluster[:] = rng.standard_normal(CLUSTER)
    ranks = np.zeros(size)
    infer(network.net(), size, 1.0, scratch, ranks)
    learner = PolicyGradient(network)
    shown = [torch.as_tensor(part[None], dtype=torch.float32) for part in (scratch.features, scratch.cluster)]
    found, heads = learner.forward(shown[0], torch.ones((1, size), dtype=torch.bool), shown[1])
    assert found[0].detach().numpy() == pytest.approx(ranks, abs=1e-4)
    assert np.exp(heads[0].detach().numpy()) == pytest.approx(scratch.heads[:2], rel=1e-4)


def test_orders_have_chances_that_add_up_to_one() -> None:
    network, rng = some_network(2), stream(2, "features")
    rows, cluster = rng.standard_normal((4, TASK)), rng.standard_normal(CLUSTER)
    orders = np.array([rows[list(order)] for order in itertools.permutations(range(4))])
    everybody = torch.ones((len(orders), 4), dtype=torch.bool)
    states = torch.as_tensor(np.repeat(cluster[None], len(orders), axis=0), dtype=torch.float32)
    none = torch.zeros(len(orders))
    shown = Shown(torch.as_tensor(orders, dtype=torch.float32), everybody, states, none, none)
    chances = PolicyGradient(network)._likelihood(shown)[0].exp().sum().item()
    assert chances == pytest.approx(1.0, abs=1e-5)


def test_drawn_orders_have_the_frequencies_of_their_chances() -> None:
    """Gumbel noise and sorting, as the engine does it, draws as Plackett and Luce do."""
    ranks, rng = np.array([0.3, -0.5, 0.9]), stream(3, "draws")
    drawn = np.argsort(-(ranks + rng.gumbel(size=(20_000, 3))), axis=1)
    first = np.bincount(drawn[:, 0], minlength=3) / len(drawn)
    assert first == pytest.approx(np.exp(ranks) / np.exp(ranks).sum(), abs=0.02)


def test_a_tape_shows_what_the_engine_saw() -> None:
    world, network = small_world(0), some_network(0)
    quiet = tape_of(world.tasks, stream(0, "tape"))
    quiet.noise[:], quiet.head_noise[:] = 0.0, 0.0
    taped = run_network(world.problem, world.tasks, network, quiet)
    plain = run_network(world.problem, world.tasks, network)
    assert np.array_equal(taped.server, plain.server)
    assert taped.gain == plain.gain
    batches = len(np.unique(world.tasks.arrival))
    assert quiet.counts[0] == batches
    sizes = np.diff(quiet.start)
    assert (sizes >= np.unique(world.tasks.arrival, return_counts=True)[1]).all()


@pytest.mark.parametrize("proximal", [False, True])
def test_gradients_get_better_than_where_they_began(proximal: bool) -> None:
    source = Source([small_world])
    unseen = source.some(10_000, 40)
    learner = PolicyGradient(poor_network(), proximal=proximal)
    before = mean_gain(learner.network, unseen)
    for step in range(45):
        learner.step(source.some(4 * step, 4), stream(0, "step", str(step)))
    assert mean_gain(learner.network, unseen) > before + 0.01


@pytest.mark.parametrize(("device", "message"), [("cuda", "no GPU"), ("gpu", "unknown device"), ("meta", "unknown")])
def test_a_device_that_is_not_there_is_said(device: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BerthError, match=message):
        PolicyGradient(some_network(0), device=device)


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
