"""Scenarios: a cluster, its job types, its arrivals and the policies to run, in one YAML file.

berth ships scenarios by name; a file of your own works the same. Each part is drawn from a seed or listed.
`berth.data.scenarios` holds the named ones; `example-explicit` is the one to copy.

>>> scenario = load_scenario("small", {"horizon": 50})
>>> world = scenario.build(seed=1, arrivals_known=False)
>>> len(world), world.problem.instance.capacity.shape
(50, (12, 6))
>>> load_scenario("small", {"ports.count": -3})
Traceback (most recent call last):
berth.errors.InvalidInput: ports.count: got -3, expected a whole number from 1 to 100000
"""

from __future__ import annotations

from berth.scenario.catalog import scenario_names
from berth.scenario.loading import Scenario, load_scenario, parse_overrides, scenario_schema

__all__ = ["Scenario", "load_scenario", "parse_overrides", "scenario_names", "scenario_schema"]
