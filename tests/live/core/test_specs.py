"""Jobs as people write them: read as meant, or refused with file, line, key, value and what was expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from berth.errors import InvalidInput
from berth.files.quantities import parse_duration
from berth.live.core.events import Finished
from berth.live.core.jobs import UNTYPED
from berth.live.core.specs import JobSpec, read_manifests, read_script
from tests.live.core.builders import begin, dispatcher, job, server

MANIFEST = """
apiVersion: berth/v1
kind: Job
metadata: {name: train-1}
spec:
  type: resnet
  roles:
    ps: {count: 1, resources: {cpu: 4, memory: 16Gi}}
    worker: {count: 8, minimum: 4, resources: {cpu: "8", gpu: 1}}
  needs: {class: a100|h100}
  work: 2h
  command: [python, train.py]
---
{tasks: 2, resources: "cpu=4,mem=16G,gres/gpu=2"}
"""

SCRIPT = """#!/bin/bash
#BERTH --name=bert -n 4 --resources=cpu=2,mem=4G
#BERTH -t 1-00:00:00 --needs class=a100 --team nlp

srun python train.py
#BERTH --name=too-late
"""


def test_manifest() -> None:
    first, second = read_manifests(MANIFEST)
    job = first.job("train-1", "ann")
    assert first.name == "train-1"
    assert [(role.name, role.count, role.minimum) for role in job.roles] == [("ps", 1, 1), ("worker", 8, 4)]
    assert job.work == 7200.0
    assert job.payload == {"command": ["python", "train.py"]}
    assert second.job("b", "ann").roles[0].demand == {"cpu": 4000, "memory": 16 * 2**30 * 1000, "gpu": 2000}


def test_script() -> None:
    spec = read_script(SCRIPT)
    job = spec.job("x", "ann")
    assert (spec.name, spec.tasks, job.team, job.needs) == ("bert", 4, "nlp", {"class": "a100"})
    assert job.limit == 86400.0
    assert job.roles[0].demand == {"cpu": 2000, "memory": 4 * 2**30 * 1000}
    assert job.payload == {"script": SCRIPT}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1:30", 90), ("02:00:00", 7200), ("1-12", 129600), ("1-12:30", 131400), ("500ms", 0.5), (7, 7)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", ["", "5", "-5s", "1:99", "nan", float("nan"), float("inf"), -1, True, None, "9999999d"]
)
def test_bad_durations(value: object) -> None:
    with pytest.raises(InvalidInput, match="estimate"):
        parse_duration(value, "estimate")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2", ["m.yaml:", "YAML"]),
        ("", ["at least one job"]),
        ("- 1", ["a mapping"]),
        ("{kind: Pod, apiVersion: berth/v1, spec: {}}", ["m.yaml:1: kind: got 'Pod', expected Job"]),
        ("kind: Job\napiVersion: berth/v1\nspec:\n  tasks: 0", ["m.yaml:4: tasks: got 0, expected a number ≥ 1"]),
        ("tasks: 1\ntasks: 2", ["m.yaml:2: tasks: got the same key again"]),
        ("kind: Job\napiVersion: berth/v1\nspecs: {}", ["m.yaml:3: specs: got an unknown key", "'spec'"]),
        ("{kind: Job, apiVersion: v1}", ["apiVersion", "berth/v1"]),
        ("{tasks: 0}", ["tasks", "0"]),
        ("{tsks: 1}", ["tsks: got an unknown key", "did you mean 'tasks'?"]),
        ("{roles: {w: {cnt: 1}}}", ["roles.w.cnt: got an unknown key", "count, minimum, "]),
        ("{tasks: two}", ["tasks: got 'two', expected a whole number"]),
        ("{priority: 5000000}", ["priority: got 5000000, expected a number ≤ 1000000"]),
        ("{command: echo hello}", ["command: got 'echo hello', expected a list"]),
        ("{roles: []}", ["m.yaml:1: roles: got an empty list, expected a mapping"]),
        ("{needs: {class: 1}}", ["needs.class: got 1, expected a text"]),
        ("{resources: {cpu: many}}", ["resources.cpu: got 'many', expected a quantity such as"]),
        ("{resources: {cpu: -1}}", ["resources", "cpu"]),
        ("{roles: {w: {count: 2}}, tasks: 3}", ["not both"]),
        ("{command: [a], callable: AAAA}", ["a command, a script or a callable, not two of them"]),
        ("{callable: 'no base64!'}", ["a callable as base64 text"]),
        ("{command: [a], script: b}", ["a command, a script"]),
        ("{estimate: soon}", ["estimate", "soon"]),
        ("{name: '../etc'}", ["name: got '../etc', expected letters, digits and . _ @ -"]),
        ("{value: .nan}", ["value"]),
        ('{command: ["a\\0b"]}', ["NUL"]),
    ],
)
def test_bad_manifests_name_the_place(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_manifests(text, "m.yaml")
    assert all(word in str(caught.value) for word in ["m.yaml", *words])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--tsks=1", ["--tsks"]),
        ("--tasks=none", ["tasks", "none"]),
        ("--tasks", ["--tasks", "value"]),
        ("--name='x", ["quotation"]),
        ("--needs=gpu", ["--needs"]),
    ],
)
def test_bad_script_lines_name_the_line(line: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_script(f"#!/bin/sh\n#BERTH {line}\ntrue\n", "job.sh")
    assert all(word in str(caught.value).lower() for word in ["job.sh:2", *words])


def read_either(text: str, script: bool) -> list[JobSpec]:
    return [read_script(f"#BERTH {text}", "file")] if script else read_manifests(text, "file")


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_read_or_refused(text: str, script: bool) -> None:
    try:
        specs = read_either(text, script)
    except InvalidInput as refusal:
        specs = []
        told = str(refusal)
    else:
        told = "file"
    assert told.startswith("file")
    assert all(JobSpec.model_validate(spec.model_dump()) == spec for spec in specs)


@given(st.dictionaries(st.sampled_from(sorted(JobSpec.model_fields)), st.one_of(st.none(), st.integers(), st.text())))
def test_any_fields_are_read_or_refused(fields: dict[str, object]) -> None:
    refused = False
    try:
        job = JobSpec.model_validate(fields).job("a", "ann")
    except (ValidationError, InvalidInput):
        refused = True
    assert refused or sum(role.minimum for role in job.roles) >= 1


def test_a_callable_is_text_that_goes_to_the_engine_as_it_is() -> None:
    assert JobSpec(callable="gASVAA==").job("x", "ann").payload == {"callable": "gASVAA=="}
    with pytest.raises(ValidationError, match="at most 1000000 characters"):
        JobSpec(callable="AAAA" * 250_001)


def test_a_pod_template_is_data_that_goes_to_the_engine_as_it_is() -> None:
    text = "{image: busybox, pod: {metadata: {labels: {app: x}}, spec: {volumes: [{name: a, emptyDir: {}}]}}}"
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}
    assert read_manifests(text)[0].job("x", "ann").payload == {"image": "busybox", "pod": pod}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"kind": "Pod"}, "the keys metadata and spec"),
        ({"spec": {"priority": float("nan")}}, "that JSON can express"),
        ({"spec": {"since": object()}}, "that JSON can express"),
        ({"spec": {"text": "x" * 1_000_000}}, "at most 1000000 characters"),
    ],
)
def test_bad_pod_templates(pod: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        JobSpec(pod=pod)


def test_jobs_without_a_type_have_one_of_their_own_and_nothing_is_learned_where_there_is_none() -> None:
    def type_of(**given: object) -> str:
        return JobSpec.model_validate(given).job("j-1", "ann").type

    assert type_of(command=["python", "/home/ann/train.py", "--lr", "1"]) == "ann.train.py"
    assert type_of(command=["sleep", "3"]) == "ann.sleep"
    assert type_of(name="night run-7".replace(" ", "-"), script="true") == "ann.night-run"
    assert type_of(type="mine", command=["sleep", "3"]) == "mine"
    assert type_of(command=["ein träger"]) == "ann.ein-tr-ger"
    assert type_of(tasks=2) == type_of(script="true") == type_of(command=["sh", "-c", "x"]) == UNTYPED
    made = dispatcher(server("a"))
    begin(made, 0.0, job("x", type=UNTYPED), job("y", type="t"))
    made.handle(Finished(1.0, "x", 1))
    made.handle(Finished(2.0, "y", 1))
    assert [type_ for type_, _, _ in made.state.learned] == ["t"]
