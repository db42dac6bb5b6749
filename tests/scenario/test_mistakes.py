"""How every mistake in a scenario file is told, over the families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import MOST_LISTED, BerthError, InvalidInput, UnknownName
from berth.files.yaml_tree import LARGEST_FILE, read_text
from berth.scenario import load_scenario
from tests.families.placement.test_scenario import DRAWN as DRL
from tests.families.placement.test_scenario import GIVEN as TASKS
from tests.families.selection.test_scenario import DRAWN as ESDP
from tests.families.selection.test_scenario import EXPLICIT as ESDP_OWN
from tests.scenario.builders import DRAWN, EXPLICIT, write

GIVEN = DRAWN + "arrivals: {process: given, slots: "
OTHERS = ("channels", "extends", "gangs", "outages", "workload")
LISTING = ", ".join(sorted(load_scenario("small").dump() | dict.fromkeys(OTHERS)))

MISTAKES = [
    # the file as a whole
    ("", "lab.yaml: got an empty file, expected a mapping (key: value)"),
    ("# nothing\n", "lab.yaml: got an empty file, expected a mapping (key: value)"),
    ("- 1\n", "lab.yaml:1: got a list, expected a mapping (key: value)"),
    ("words\n", "lab.yaml:1: got 'words', expected a mapping (key: value)"),
    ("a: [1,\nb: }\n", "lab.yaml:2: got text that is not YAML at column 4 (did not find expected node content), "
     "expected YAML"),
    ("a: \x01\n", "lab.yaml: got text that is not YAML (unacceptable character #x0001: control characters are not "
     "allowed), expected YAML"),
    ("a: 1\n---\nb: 2\n", "lab.yaml:2: got a second YAML document (---), expected one document a file"),
    ("a: &x 1\nb: *x\n", "lab.yaml:2: b: got an alias (*x), expected the value itself, or `extends`"),
    ("a: !thing 1\n", "lab.yaml:1: a: got a YAML tag (!thing), expected a plain value"),
    ("? [a]\n: 1\n", "lab.yaml:1: got a list or mapping as key, expected a text as key"),
    ("a: " + "[" * 50_000, "lab.yaml:1: got deeper nesting, expected at most 32 levels"),
    (DRAWN + "ports: {count: 3}\n", "lab.yaml:3: ports: got the same key again, expected each key once "
     "(it is on line 2)"),
    # keys
    (DRAWN + "horizn: 3\n", "lab.yaml:3: horizn: got an unknown key, expected another; did you mean 'horizon'?"),
    (DRAWN + "extend: small\n", "lab.yaml:3: extend: got an unknown key, expected another; "
     "did you mean 'extends'?"),
    (DRAWN + "5: 3\n", f"lab.yaml:3: 5: got an unknown key, expected one of {LISTING}"),
    ("cluster: {}\nports:\n  cuont: 2\n", "lab.yaml:3: ports.cuont: got an unknown key, expected one of contention, "
     "count, draw; did you mean 'count'?"),
    ("ports: {count: 2}\n", "lab.yaml:1: cluster: got nothing, expected this key"),
    (DRAWN + "arrivals: {process: poisson, mean: 1}\n", "lab.yaml:3: arrivals.most: got nothing, expected this key"),
    # types
    (EXPLICIT.replace("cpu: 8", "cpu: -8"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got -8, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: .nan"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got nan, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: 1e999"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got inf, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: true"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got True, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: lots"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got 'lots', "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("count: 2", "count: 2.0"), "lab.yaml:4: cluster.servers[0].count: got 2.0, "
     "expected a whole number from 1 to 1000000"),
    (DRAWN + "title:\n", "lab.yaml:3: title: got nothing, expected a text"),
    (DRAWN + "name: 5\n", "lab.yaml:3: name: got 5, expected a text"),
    (DRAWN + "overhead: [0.1, 0.2, 0.3]\n", "lab.yaml:3: overhead: got [0.1, 0.2, 0.3], expected two numbers ≥ 0, "
     "[lowest, highest]"),
    (DRAWN + "overhead: high\n", "lab.yaml:3: overhead: got 'high', expected a number ≥ 0, a range [lowest, highest], "
     "or one for each resource"),
    (DRAWN + "channels: {density: dense}\n", "lab.yaml:3: channels.density: got 'dense', expected a number ≥ 1, "
     "or all"),
    (DRAWN + "channels: 3\n", "lab.yaml:3: channels: got 3, expected a mapping (key: value)"),
    (DRAWN + "policies: fairness\n", "lab.yaml:3: policies: got 'fairness', expected a list"),
    (DRAWN + "policies: []\n", "lab.yaml:3: policies: got an empty list, expected at least one entry"),
    ("cluster: {}\nports: 3\n", "lab.yaml:2: ports: got 3, expected a mapping (key: value)"),
    (DRAWN + "arrivals_known: yes\n", "lab.yaml:3: arrivals_known: got 'yes', expected one of hidden, revealed, both"),
    (DRAWN + "oracles: [slots]\n", "lab.yaml:3: oracles[0]: got 'slots', expected one of stationary, slot; "
     "did you mean 'slot'?"),
    (DRAWN + "arrivals: {process: bernouli}\n", "lab.yaml:3: arrivals.process: got 'bernouli', expected one of "
     "bernoulli, switching, poisson, given, workload; did you mean 'bernoulli'?"),
    (DRAWN + "arrivals: {probability: 70%}\n", "lab.yaml:3: arrivals.probability: got '70%', expected a probability, "
     "0 to 1"),
    ("cluster: {servers: 0}\nports: {count: -1, contention: no}\nhorizon: 2.5\n", "lab.yaml:1: cluster.servers: got 0, "
     "expected a whole number from 1 to 1000000\n"
     "lab.yaml:2: ports.count: got -1, expected a whole number from 1 to 100000\n"
     "lab.yaml:2: ports.contention: got 'no', expected a number > 0\n"
     "lab.yaml:3: horizon: got 2.5, expected a whole number from 1 to 10000000"),
    # names
    (EXPLICIT.replace("demand: {cpu", "demand: {gpus"), "lab.yaml:9: ports[0].demand.gpus: got an unknown resource, "
     "expected one of cpu, gpu; did you mean 'gpu'?"),
    (EXPLICIT.replace("gpu: 1}", "gup: 1}"), "lab.yaml:6: cluster.servers[1].capacity.gup: got an unknown resource, "
     "expected one of cpu, gpu; did you mean 'gpu'?"),
    (EXPLICIT + "    servers: []\n", "lab.yaml:10: ports[0].servers: got a port with no channel, expected at least "
     "one server"),
    (EXPLICIT + "    servers: [a, c]\n", "lab.yaml:10: ports[0].servers[1]: got 'c', expected the name of a server "
     "or group"),
    (EXPLICIT + "    servers: some\n", "lab.yaml:10: ports[0].servers: got 'some', expected all, or a list of server "
     "names"),
    (EXPLICIT + "  - {name: train, demand: {cpu: 1}}\n", "lab.yaml:10: ports[1].name: got 'train', expected a port "
     "name not already used at ports[0].name"),
    (EXPLICIT.replace("name: b", "name: a-1"), "lab.yaml:5: cluster.servers[1].name: got 'a-1', expected a server name "
     "not already used at cluster.servers[0].name"),
    (EXPLICIT.replace("name: b", "name: a"), "lab.yaml:5: cluster.servers[1].name: got 'a', expected a server name "
     "not already used at cluster.servers[0].name"),
    (EXPLICIT.replace("[cpu, {", "[cpu, cpu, {"), "lab.yaml:2: cluster.resources[1]: got 'cpu', expected a resource "
     "name not already used at cluster.resources[0]"),
    (EXPLICIT.replace("    demand: {cpu: 4}\n", ""), "lab.yaml:8: ports[0]: got neither demand nor components, "
     "expected one of them"),
    (EXPLICIT.replace("{cpu: 4}\n", "{cpu: 0}\n"), "lab.yaml:9: ports[0].demand: got a job that requests nothing, "
     "expected more than 0 of some resource"),
    (EXPLICIT.replace("ports:\n  - name: train\n    demand: {cpu: 4}", "ports: {count: 2}").replace("cpu", "core"),
     "lab.yaml:7: ports.draw: got one with the resource 'core', expected a cluster of cpu, memory, gpu, npu, tpu, "
     "fpga only"),
    (DRAWN + "overhead: {cpu: 1, memory: 1}\n", "lab.yaml:3: overhead: got none for gpu, npu, tpu, fpga, expected a "
     "number for every resource"),
    (DRAWN + "utilities: {kinds: [lin]}\n", "lab.yaml:3: utilities.kinds[0]: got 'lin', expected one of linear, log, "
     "poly, reciprocal; did you mean 'linear'?"),
    (DRAWN + "policies: [drf, farness]\n", "lab.yaml:3: policies[1]: got 'farness', expected a known policy; "
     "did you mean 'fairness'?"),
    (DRAWN + "policies: ['fairness:step=1']\n", "lab.yaml:3: policies[0]: got 'fairness:step=1', expected a known "
     "setting of fairness (there is none)"),
    (DRAWN + "policies: ['no.such:Thing']\n", "lab.yaml:3: policies[0]: got 'no.such:Thing', expected a module in "
     "this directory, or an installed one, as package.module:Class"),
    (DRAWN + "baseline: farness\n", "lab.yaml:3: baseline: got 'farness', expected a known policy; "
     "did you mean 'fairness'?"),
    # what must match
    (DRAWN + "overhead: [0.5, 0.3]\n", "lab.yaml:3: overhead: got [0.5, 0.3], expected [lowest, highest] in this "
     "order"),
    (DRAWN + "arrivals: {process: switching, low: 0.8, high: 0.2}\n", "lab.yaml:3: arrivals.low: got 0.8, expected at "
     "most high, 0.2"),
    (DRAWN + "arrivals: {probability: [0.1]}\n", "lab.yaml:3: arrivals.probability: got 1 of them, expected 2 numbers, "
     "one for each job type"),
    (GIVEN + "[[1, 0], [1]]}\n", "lab.yaml:3: arrivals.slots[1]: got 1 of them, expected 2 numbers, one for each job "
     "type"),
    (GIVEN + "[[1, 0], [1, 2]]}\n", "lab.yaml:3: arrivals.slots[1][1]: got 2, expected 0 or 1"),
    ("horizon: 5\n" + GIVEN + "[[1, 0]]}\n", "lab.yaml:1: horizon: got 5, expected at most the 1 slots given in "
     "arrivals"),
    (DRAWN.replace("count: 2", "count: 90000") + "horizon: 10000000\n", "lab.yaml:3: horizon: got 900000000000, "
     "expected at most 500000000 slots × job types"),
    (EXPLICIT + "    probability: 1\narrivals: {probability: [1]}\n", "lab.yaml:10: ports[0].probability: got a "
     "probability twice, expected one, here or in the list arrivals.probability"),
    (EXPLICIT + "    probability: 1\narrivals: {process: switching}\n", "lab.yaml:10: ports[0].probability: got a "
     "probability beside process switching, expected arrivals.process bernoulli"),
    (EXPLICIT + "    minimum: 1\n", "lab.yaml:10: ports[0].minimum: got a minimum alone, expected components "
     "beside it"),
    (DRAWN + "gangs: {components: 2, minimum: 3}\n", "lab.yaml:3: gangs.minimum: got 3, expected at most the 2 "
     "components"),
    (DRAWN + "gangs: {share: 0.5}\n", "lab.yaml:3: gangs.components: got nothing, expected this key, or components at "
     "the ports"),
    (DRAWN + "gangs: {components: 2}\narrivals: {process: poisson, mean: 1, most: 2}\n", "lab.yaml:4: "
     "arrivals.process: got 'poisson', expected at most one job a slot where there are gangs"),
    # layers
    ("extends: ogasched-defalt\n", "lab.yaml:1: extends: got 'ogasched-defalt', expected the name or file of a "
     "scenario; did you mean 'ogasched-default'?"),
    ("extends: ./lab.yaml\n", "lab.yaml:1: extends: got a cycle lab.yaml → lab.yaml, expected scenarios that do "
     "not extend each other"),
    ("extends: ./none.yaml\n", "lab.yaml:1: extends: got no such file './none.yaml', expected the name or file of a "
     "scenario"),
    ("extends: [small]\n", "lab.yaml:1: extends: got ['small'], expected the name or file of a scenario"),
    ("extends: small\nports: {count: 0}\n", "lab.yaml:2: ports.count: got 0, expected a whole number from 1 to 100000"),
]  # fmt: skip

SELECTION_MISTAKES = [
    ("family: selektion\n", "lab.yaml:1: family: got 'selektion', expected one of allocation, selection, "
     "placement; did you mean 'selection'?"),
    ("family: [selection]\n", "lab.yaml:1: family: got a list, expected one of allocation, selection, placement"),
    ("family:\n", "lab.yaml:1: family: got nothing, expected one of allocation, selection, placement"),
    (ESDP + "arrivals_known: hidden\n", "lab.yaml:2: arrivals_known: got 'hidden', expected revealed: in the "
     "selection family policies always see who has a job"),
    (ESDP + "overhead: 0.3\n", "lab.yaml:2: overhead: got a key of another family, expected family: allocation "
     "beside it"),
    ("cluster: {servers: 4}\nports: {count: 2}\ngains: {spread: 1}\n", "lab.yaml:3: gains: got a key of another "
     "family, expected family: selection beside it"),
    (ESDP + "gians: {}\n", "lab.yaml:2: gians: got an unknown key, expected another; did you mean 'gains'?"),
    (ESDP + "oracles: [stationary]\n", "lab.yaml:2: oracles[0]: got 'stationary', expected one of slot, information"),
    (ESDP + "gains: {distribution: normel}\n", "lab.yaml:2: gains.distribution: got 'normel', expected one of "
     "normal, bounded, lognormal, empirical, papers, measured; did you mean 'normal'?"),
    (ESDP + "gains: {spread: -1}\n", "lab.yaml:2: gains.spread: got -1, expected a number ≥ 0"),
    (ESDP + "gains: {mean: [1, 0.1]}\n", "lab.yaml:2: gains.mean: got [1.0, 0.1], expected [lowest, highest] in this "
     "order"),
    (ESDP + "gains: {distribution: empirical}\n", "lab.yaml:2: gains.samples: got nothing, expected this key, for "
     "distribution: empirical"),
    (ESDP + "gains: {distribution: lognormal, mean: [0, 1]}\n", "lab.yaml:2: gains.mean: got [0.0, 1.0], expected "
     "means > 0, for distribution: lognormal"),
    (ESDP + "costs: cheap\n", "lab.yaml:2: costs: got 'cheap', expected a number ≥ 0, a range [lowest, highest], or "
     "a price by resource"),
    (ESDP + "costs: {cpu: 1}\n", "lab.yaml:2: costs.cpu: got an unknown resource, expected one of resource-0, "
     "resource-1, resource-2"),
    (ESDP + "costs: {resource-0: {price: -1}}\n", "lab.yaml:2: costs.resource-0.price: got -1, expected a number ≥ 0"),
    (ESDP + "costs: {resource-0: {price: 1, shape: cubic}}\n", "lab.yaml:2: costs.resource-0.shape: got 'cubic', "
     "expected one of linear, quadratic, sqrt"),
    (ESDP + "costs: {resource-0: free}\n", "lab.yaml:2: costs.resource-0: got 'free', expected a number ≥ 0, or "
     "{price, shape}"),
    (ESDP + "drift: {kind: jump}\n", "lab.yaml:2: drift.kind: got 'jump', expected one of redraw, walk"),
    (ESDP + "drift: {kind: walk, every: 5}\n", "lab.yaml:2: drift.every: got every beside kind: walk, expected kind: "
     "redraw beside it"),
    (ESDP + "drift: {kind: walk}\ngains: {mean: 0.5}\n", "lab.yaml:3: gains.mean: got 0.5, expected a range, "
     "[lowest, highest], where there is drift"),
    (ESDP + "delay: {least: 3, most: 1}\n", "lab.yaml:2: delay.least: got 3, expected at most `most`, 1"),
    (ESDP + "capacity: {scope: servers}\n", "lab.yaml:2: capacity.scope: got 'servers', expected one of server, "
     "cluster; did you mean 'server'?"),
    (ESDP + "capacity: {each: {resource-0: 1}}\n", "lab.yaml:2: capacity.each: got none for resource-1, resource-2, "
     "expected a number for every resource"),
    (ESDP_OWN + "capacity: {each: 2}\n", "lab.yaml:10: capacity.each: got servers that have their own capacity, "
     "expected this key only with scope: cluster"),
    (ESDP + "outages: {probability: 0.1, repair: 0.1}\n", "lab.yaml:2: outages: got servers that fail where capacity "
     "is one pool, expected capacity.scope server"),
    (ESDP + "arrivals: {dead: [8]}\n", "lab.yaml:2: arrivals.dead[0]: got 8, expected a number below 8, or the name "
     "of a port"),
    (ESDP_OWN + "arrivals: {dead: [trian]}\n", "lab.yaml:10: arrivals.dead[0]: got 'trian', expected the name of a "
     "port; did you mean 'train'?"),
    (ESDP + "arrivals: {probability: [0.5]}\n", "lab.yaml:2: arrivals.probability: got 1 of them, expected 8 "
     "numbers, one for each job type"),
    (ESDP + "ports: {draw: gangs}\n", "lab.yaml:2: ports.draw: got one of resource-0, resource-1, resource-2, "
     "expected a cluster of cpu, memory, gpu, such as draw: machines"),
    (ESDP + "cluster: {draw: machines, resource_kinds: 2}\n", "lab.yaml:2: cluster.resource_kinds: got 2, expected "
     "this key only with draw: papers"),
    (ESDP_OWN + "    roles: [{name: w, demand: {cpu: 1}}]\n", "lab.yaml:8: ports[0]: got both demand and roles, "
     "expected one of them"),
    (ESDP_OWN.replace("demand: {cpu: 4}", "roles: [{name: w, demand: {cpu: 1}, minimum: 3, most: 2}]"),
     "lab.yaml:9: ports[0].roles[0].minimum: got 3, expected at most `most`, 2"),
    (ESDP_OWN.replace("demand: {cpu: 4}", "roles: [{name: w, demand: {cpu: 1}}]") + "arrivals: {process: poisson, "
     "mean: 1, most: 2}\n", "lab.yaml:10: arrivals.process: got 'poisson', expected at most one job a slot where "
     "there are gangs"),
    (ESDP_OWN.replace("gpu: 1}", "gup: 1}"), "lab.yaml:6: cluster.servers[1].capacity.gup: got an unknown resource, "
     "expected one of cpu, gpu; did you mean 'gpu'?"),
    (ESDP_OWN + "    servers: [c]\n", "lab.yaml:10: ports[0].servers[0]: got 'c', expected the name of a server or "
     "group"),
    (ESDP + "policies: [esbc]\n", "lab.yaml:2: policies[0]: got 'esbc', expected a known policy; did you mean "
     "'escb'?"),
]  # fmt: skip

PLACEMENT_MISTAKES = [
    ("family: placement\n", "lab.yaml:1: cluster: got nothing, expected this key\n"
     "lab.yaml:1: tasks: got nothing, expected this key"),
    (DRL + "arrivals_known: hidden\n", "lab.yaml:8: arrivals_known: got 'hidden', expected revealed: in the "
     "placement family policies always see the tasks that have arrived"),
    (DRL + "oracles: [stationary]\n", "lab.yaml:8: oracles[0]: got 'stationary', expected slot"),
    (DRL + "gains: {spread: 1}\n", "lab.yaml:8: gains: got a key of another family, expected family: selection "
     "beside it"),
    (DRL + "idel: 3\n", "lab.yaml:8: idel: got an unknown key, expected another; did you mean 'idle'?"),
    (DRL + "idle: -1\n", "lab.yaml:8: idle: got -1, expected a time ≥ 0, or never"),
    (DRL + "idle: .nan\n", "lab.yaml:8: idle: got nan, expected a time ≥ 0, or never"),
    (DRL + "idle: always\n", "lab.yaml:8: idle: got 'always', expected a time ≥ 0, or never"),
    (DRL + "period: 0\n", "lab.yaml:8: period: got 0, expected a number > 0"),
    (DRL + "launch_cost: {weights: {core: 1}}\n", "lab.yaml:8: launch_cost.weights.core: got an unknown resource, "
     "expected one of cores, memory; did you mean 'cores'?"),
    (DRL + "execution_cost: {clock_power: -1}\n", "lab.yaml:8: execution_cost.clock_power: got -1, expected a "
     "number ≥ 0"),
    (DRL + "arrivals: {process: poison}\n", "lab.yaml:8: arrivals.process: got 'poison', expected one of poisson, "
     "given; did you mean 'poisson'?"),
    (DRL + "arrivals: {process: given, sizes: [1, -2]}\n", "lab.yaml:8: arrivals.sizes[1]: got -2, expected a whole "
     "number from 0 to 10000000"),
    (DRL + "arrivals: {process: given, sizes: [1, 2]}\nhorizon: 3\n", "lab.yaml:9: horizon: got 3, expected at most "
     "the 2 batches given in arrivals"),
    (DRL + "arrivals: {mean: 1000000}\n", "lab.yaml:1: horizon: got about 100000000 of them, expected at most "
     "20000000 tasks"),
    (TASKS + "arrivals: {mean: 3}\n", "lab.yaml:9: arrivals: got arrivals beside a list of tasks, expected tasks that "
     "are drawn"),
    (TASKS + "horizon: 2\n", "lab.yaml:7: tasks[0].batch: got 3, expected a number below the horizon, 2"),
    (TASKS.replace("work: 2", "work: 0"), "lab.yaml:7: tasks[0].work: got 0, expected a number > 0"),
    (TASKS.replace("{cores: 2}", "{gpus: 2}"), "lab.yaml:7: tasks[0].demand.gpus: got an unknown resource, expected "
     "one of cores"),
    (DRL.replace("integers: [1, 4]", "integers: [4, 1]"), "lab.yaml:7: tasks.demand.cores.integers: got [4, 1], "
     "expected [lowest, highest] in this order"),
    (DRL.replace("integers: [1, 4]", "integers: [1, 4], uniform: [1, 2]"), "lab.yaml:7: tasks.demand.cores: got "
     "integers and uniform, expected one of integers, uniform, choices, per_work, per_value"),
    (DRL.replace("{integers: [1, 4]}", "{}"), "lab.yaml:7: tasks.demand.cores: got none of them, expected one of "
     "integers, uniform, choices, per_work, per_value"),
    (DRL.replace("{integers: [1, 4]}", "few"), "lab.yaml:7: tasks.demand.cores: got 'few', expected a number ≥ 0, "
     "or how it is drawn (key: value)"),
    (DRL.replace("demand:", "work: {uniform: [0, 1]}, demand:"), "lab.yaml:7: tasks.work: got work that may be 0, "
     "expected work > 0"),
    (DRL.replace("demand:", "work: {per_work: 1}, demand:"), "lab.yaml:7: tasks.work.per_work: got 1.0, expected "
     "another way to draw work itself"),
    (DRL.replace("demand:", "value: {mean: 2, least: 3}, demand:"), "lab.yaml:7: tasks.value.least: got 3.0, "
     "expected at most the mean, 2"),
    (DRL.replace("speed: 2", "speed: 0"), "lab.yaml:5: cluster.servers[0].speed: got 0, expected a number > 0"),
    (DRL.replace("count: 2", "share: 1"), "lab.yaml:5: cluster.servers[0].share: got 1.0, expected cluster.count "
     "beside it"),
    (DRL.replace("resources:", "count: 4\n  resources:"), "lab.yaml:6: cluster.servers[0].count: got 2, expected a "
     "share of cluster.count in its place\n"
     "lab.yaml:7: cluster.servers[1].share: got nothing, expected this key, beside cluster.count"),
    (DRL.replace("name: slow", "name: fast-1"), "lab.yaml:6: cluster.servers[1].name: got 'fast-1', expected a "
     "server name not already used at cluster.servers[0].name"),
    (DRL + "failures: {permanent: {time: 3}}\n", "lab.yaml:8: failures.permanent: got neither, expected one of "
     "probability, share"),
    (DRL + "failures: {transient: {up: 3}}\n", "lab.yaml:8: failures.transient.down: got nothing, expected this "
     "key"),
    (DRL + "failures: {given: [{server: fast, time: 3}]}\n", "lab.yaml:8: failures.given[0].server: got 'fast', "
     "expected the name of a server; did you mean 'fast-0'?"),
    (DRL + "failures: {given: [{server: slow, time: 3, until: 2}]}\n", "lab.yaml:8: failures.given[0].until: got "
     "2.0, expected a time after 3"),
    (DRL + "policies: [gredy]\n", "lab.yaml:8: policies[0]: got 'gredy', expected a known policy; did you mean "
     "'greedy'?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(*mistake, id=f"{family}-{i}")
        for family, mistakes in (
            ("allocation", MISTAKES),
            ("selection", SELECTION_MISTAKES),
            ("placement", PLACEMENT_MISTAKES),
        )
        for i, mistake in enumerate(mistakes)
    ],
)
def test_every_mistake_is_told_in_a_line_of_its_own(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        load_scenario("lab.yaml")
    assert str(caught.value) == message
    assert len(message.splitlines()) == 1 + len(caught.value.others)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"ports.cuont": 3}, "ports.cuont: got an unknown key, expected one of contention, count, draw; "
         "did you mean 'count'?"),
        ({"horizon": True}, "horizon: got True, expected a whole number from 1 to 10000000"),
        ({"horizon": float("nan")}, "horizon: got nan, expected a whole number from 1 to 10000000"),
        ({"ports[0].count": 3}, "ports: got no list to index, expected a list"),
        ({"ports..count": 3}, "override: got 'ports..count', expected a key such as ports.count or "
         "ports[0].demand.gpu"),
        ({"": 3}, "override: got '', expected a key such as ports.count or ports[0].demand.gpu"),
        ({"ports": 3, "ports.count": 3}, "override: got 'ports.count', expected a key that no other override holds "
         "already"),
        ({"utilities.kinds[9]": "log"}, "utilities.kinds[9]: got 9, expected an index below 4"),
        ({"gain": {}}, "gain: got an unknown key, expected another; did you mean 'gains', of the selection family?"),
    ],
)  # fmt: skip
def test_mistakes_in_overrides_name_their_key(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_scenario("small", overrides)
    assert str(caught.value) == message


def test_a_mistake_in_a_base_names_the_base(tmp_path: Path) -> None:
    base = write(tmp_path, "cluster: {}\nports: {}\nhorizon: -1\n", "base.yaml")
    with pytest.raises(InvalidInput) as caught:
        load_scenario(write(tmp_path, "extends: base.yaml\n"))
    assert str(caught.value) == f"{base}:3: horizon: got -1, expected a whole number from 1 to 10000000"


def test_cycles_through_several_files(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    write(tmp_path, "extends: a.yaml\n", "b.yaml")
    with pytest.raises(InvalidInput, match=r"b\.yaml:1: extends: got a cycle a\.yaml → b\.yaml → a\.yaml"):
        load_scenario(tmp_path / "a.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"title: \xe9\n")
    with (tmp_path / "large.yaml").open("wb") as stream:
        stream.truncate(LARGEST_FILE + 2**20)
    for name, words in [
        ("none.yaml", "got no such file, expected a scenario file"),
        ("latin.yaml", "got something else at byte 7, expected text in UTF-8"),
        ("large.yaml", "got one of 5.0 MiB, expected a scenario file of at most 4 MiB"),
        ("", "got a folder, expected a scenario file"),
    ]:
        path = tmp_path / name
        with pytest.raises(InvalidInput) as caught:
            load_scenario(path)
        assert str(caught.value) == f"{path}: {words}"


@pytest.mark.parametrize("name", ["", "nothing-like-it", "a\0b", "x" * 5000])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownName, match="unknown scenario"):
        load_scenario(name)


def test_a_folder_is_no_scenario_even_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smal").mkdir()
    with pytest.raises(InvalidInput, match=r"^smal: got a folder, expected a scenario file$"):
        load_scenario("smal")


def test_many_mistakes_are_cut(tmp_path: Path) -> None:
    keys = "".join(f"unknown{n}: 1\n" for n in range(MOST_LISTED + 5))
    with pytest.raises(InvalidInput) as caught:
        load_scenario(write(tmp_path, DRAWN + keys))
    assert str(caught.value).splitlines()[-1] == "and 4 more mistakes"


def test_unknown_name_suggests() -> None:
    with pytest.raises(UnknownName, match="did you mean 'ogasched-default'"):
        load_scenario("ogashed-default")


def trees(words: list[str], keys: list[str]) -> st.SearchStrategy[Any]:
    """Whatever YAML can hold, with these words and keys among it."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(words)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(keys), inner),
        max_leaves=8,
    )


WORDS = {
    "small": (["all", "log", "a"], ["name", "draw", "servers", "process", "demand", "fixed", "x"]),
    "esdp-default": (["all", "walk", "a"], ["name", "draw", "servers", "process", "kind", "each", "mean", "x"]),
    "drl-default": (
        ["never", "cores"],
        ["name", "count", "servers", "process", "demand", "uniform", "mean", "share", "given"],
    ),
}
KEYS = {
    "small": sorted(load_scenario("ogasched-gang").dump()),
    "esdp-default": [
        *(
            "cluster",
            "ports",
            "channels",
            "capacity",
            "gains",
            "costs",
            "drift",
            "delay",
            "arrivals",
            "outages",
            "family",
        ),
    ],
    "drl-default": [
        *("cluster", "tasks", "idle", "period", "launch_cost", "execution_cost", "arrivals", "failures", "family"),
    ],
}
WORDS["example-explicit"], KEYS["example-explicit"] = WORDS["small"], KEYS["small"]


@pytest.mark.parametrize("base", WORDS)
@given(st.data())
def test_whatever_a_file_holds_ends_in_a_scenario_or_a_line_for_each_mistake(base: str, data: st.DataObject) -> None:
    values = data.draw(st.dictionaries(st.sampled_from(KEYS[base]), trees(*WORDS[base]), max_size=4))
    lines, mistakes = 0, 0
    try:
        load_scenario({"extends": base, **values})
    except BerthError as error:
        lines, mistakes = len(str(error).splitlines()), 1 + len(getattr(error, "others", ()))
    assert lines == min(mistakes, 2 + MOST_LISTED)


@given(st.text(max_size=60))
def test_whatever_text_a_file_is(text: str) -> None:
    message = "lab.yaml"
    try:
        read_text(text, "lab.yaml")
    except InvalidInput as error:
        message = str(error)
    assert message.startswith("lab.yaml")
