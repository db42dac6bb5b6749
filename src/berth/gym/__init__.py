"""Gymnasium environments, and policies that ask a trained agent. They need `pip install 'berth-scheduler[gym]'`.

Importing this module registers `berth/Queue-v0`, `berth/Placement-v0`, `berth/Selection-v0` and `berth/Allocation-v0`.

>>> import gymnasium
>>> import berth.gym
>>> env = gymnasium.make("berth/Placement-v0", scenario="drl-small")
>>> observation, info = env.reset(seed=1)
>>> total, over = 0.0, False
>>> while not over:
...     legal = info["action_mask"].nonzero()[0]
...     observation, reward, over, _, info = env.step(legal[-1])  # the last kind of server that has room
...     total += reward
>>> total > 0
True
"""

from __future__ import annotations

from berth.errors import MissingExtra

try:
    import gymnasium
except ModuleNotFoundError as missing:
    raise MissingExtra("berth.gym", "gym") from missing

from berth.gym.agents import AgentPolicy, AllocationAgent, PlacementAgent, QueueAgent, SelectionAgent, answering
from berth.gym.allocation import AllocationEnv
from berth.gym.placement import PlacementEnv
from berth.gym.queue import QueueEnv
from berth.gym.selection import SelectionEnv

__all__ = [
    "IDS",
    "AgentPolicy",
    "AllocationAgent",
    "AllocationEnv",
    "PlacementAgent",
    "PlacementEnv",
    "QueueAgent",
    "QueueEnv",
    "SelectionAgent",
    "SelectionEnv",
    "answering",
]

IDS = {
    "berth/Queue-v0": QueueEnv,
    "berth/Placement-v0": PlacementEnv,
    "berth/Selection-v0": SelectionEnv,
    "berth/Allocation-v0": AllocationEnv,
}
"""The environments by the name under which they are registered."""

for _name, _kind in IDS.items():
    if _name not in gymnasium.registry:
        gymnasium.register(_name, entry_point=f"berth.gym:{_kind.__name__}")
