"""Slurm's words: what it says in two versions, what it is told, and settings. No cluster is needed."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import re
import shlex
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from berth.cli import app
from berth.errors import InvalidInput
from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Owner
from berth.live.engines.registry import check_engine
from berth.live.engines.slurm import SlurmSettings, read_settings
from berth.live.engines.slurm.commands import Away, Refused, SlurmCommands, failure, sbatch_arguments
from berth.live.engines.slurm.companion import request
from berth.live.engines.slurm.environment import ordinary_uids
from berth.live.engines.slurm.hooks import Hooks, hold_script, hook_script
from berth.live.engines.slurm.interpret import how_it_ended, server, when_it_began
from berth.live.engines.slurm.outputs import AGAIN, LAUNCH, Mark, last_words, mark_of, read_mark, sweep
from berth.live.engines.slurm.parsing import SlurmJob, read_config, read_jobs, read_nodes
from berth.live.engines.slurm.partitions import read_partitions, read_reservations
from berth.live.engines.slurm.spool import AttemptRecord, Spool
from berth.live.engines.slurm.submission import MIB, NotPossible, layout, quote, read_tag, submission, write_tag
from tests.harness.waiting import eventually_async
from tests.live.engines.slurm.recorded import INSTANCE, VERSIONS, recording

both_versions = pytest.mark.parametrize("version", VERSIONS)


@both_versions
def test_jobs_of_both_versions_mean_the_same(version: str) -> None:
    jobs = {job.name: job for job in read_jobs(recording(version, "squeue.json"))}
    runs, held, bad = jobs["gang"], jobs["held"], jobs["bad"]
    assert read_tag(runs.comment, INSTANCE) == ("train-7", 2)
    assert runs.running
    assert not runs.ended
    assert runs.nodes == runs.required == ("n1", "n2")
    assert (runs.limit, runs.node_count, runs.cpus, runs.memory_per_node) == (5400.0, 2, 4, 100)
    assert runs.start is not None
    assert held.pending
    assert held.held
    assert (held.reason, held.partition, held.start, held.memory_per_cpu) == ("JobHeldUser", "shared", None, 50)
    assert (bad.exit_code, bad.signal, bad.ended) == (3, 0, True)
    assert (jobs["cancelled"].signal, jobs["refused"].signal) == (15, 1)
    assert [name for name, job in jobs.items() if job.refused] == ["refused"]
    assert jobs["components"].leader == jobs["components"].id - 1
    assert [jobs[name].limit for name in ("small", "late")] == [None, 60.0]
    job = request(held, INSTANCE)
    (role,) = job.roles
    assert (job.type, job.user, job.work, job.limit) == ("resnet", held.user, 3600.0, 1800.0)
    assert job.needs == {"fast": "yes", "partition.shared": "yes"}
    assert (role.count, role.per_server) == (2, 1)
    assert role.demand == {"cpu": 2 * MILLI, "memory": 100 * MIB, "gpu": MILLI}
    assert job.id == f"slurm-{held.id}-{int(held.submit or 0)}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slurm_load_jobs error", "did not answer in JSON"),
        ("[]", "expected an object with a list of jobs"),
        ('{"jobs": [], "errors": [{"description": "Failed while looking for jobs"}]}', "is slurmctld running"),
        ('{"jobs": [{"job_id": 4, "job_state": 7}]}', "job 4: job_state: got 7, expected a state"),
        ('{"jobs": [{"job_state": "RUNNING"}]}', "job_id: got None, expected a number"),
        ('{"jobs": [5]}', "squeue --json: job 5"),
    ],
)
def test_bad_answers_are_named(text: str, said: str) -> None:
    with pytest.raises(EngineError, match=re.escape(said)):
        read_jobs(text)


@both_versions
def test_nodes_and_servers(version: str) -> None:
    text = recording(version, "nodes.txt")
    nodes = {node.name: node for node in read_nodes(text)}
    first = server(nodes["n1"])
    assert first.capacity == {"cpu": 4 * MILLI, "memory": 4096 * MIB, "gpu": 2 * MILLI, "licence": 3 * MILLI}
    partitions = {"partition.main": "yes", "partition.shared": "yes"}
    assert first.labels == {**partitions, "fast": "yes", "class": "big", "gpu": "yes", "licence": "yes"}
    assert first.closed == ""
    assert server(nodes["n7"]).closed == "drain in Slurm: a fan is loud"
    line = text.splitlines()[0]
    down = read_nodes(line.replace("State=MIXED", "State=DOWN*"))[0]
    assert not down.there
    quiet = read_nodes(line.replace("State=MIXED", "State=IDLE*"))[0]
    assert quiet.there
    assert server(quiet).closed == "not responding in Slurm"
    unknown = re.sub(r"SlurmdStartTime=\S+", "SlurmdStartTime=None", line.replace("State=MIXED", "State=UNKNOWN"))
    silent = read_nodes(unknown)[0]
    assert silent.silent
    assert not silent.there
    typed = read_nodes(line.replace("Gres=gpu:2", "Gres=gpu:a100:2(S:0-1)"))[0]
    assert server(typed).labels["gpu"] == "a100"
    with pytest.raises(EngineError, match="expected RealMemory"):
        read_nodes(line.replace("RealMemory", "Other"))


@both_versions
def test_config(version: str) -> None:
    text = recording(version, "config.txt")
    found = read_config(text)
    assert (found.min_job_age, found.default_memory) == (300.0, True)
    assert found.version.startswith(version)
    assert not read_config(re.sub(r"(DefMemPerCPU\s*= )64", r"\1UNLIMITED", text)).default_memory
    assert found.spanning
    assert not read_config(text + "SchedulerParameters     = bf_interval=1,disable_hetjob_steps\n").spanning
    with pytest.raises(EngineError, match="expected BOOT_TIME"):
        read_config("nothing")


@both_versions
def test_partitions_and_reservations(version: str) -> None:
    found = read_partitions(recording(version, "partitions.txt"))
    assert {name: (one.default, one.max_time) for name, one in found.items()} == {
        "main": (True, 3600.0),
        "shared": (False, None),
    }
    (partition,) = read_partitions("PartitionName=day Default=NO MaxTime=1-02:00:00 State=UP\n").values()
    assert (partition.name, partition.default, partition.max_time) == ("day", False, 26 * 3600.0)
    reserved = {one.name: one for one in read_reservations(recording(version, "reservation.txt"))}
    assert {name: (sorted(one.nodes), one.cores) for name, one in reserved.items()} == {
        "later": (["n3", "n4"], 8),
        "today": (["n5"], 4),
        "cores": (["n6"], 2),
        "moving": (["n8"], 4),
    }
    assert {name for name, one in reserved.items() if "MAINT" in one.flags} == {"later"}
    assert {name for name, one in reserved.items() if "TIME_FLOAT" in one.flags} == {"moving"}
    assert read_reservations("No reservations in the system\n") == []


def test_away_is_told_from_refused() -> None:
    base = "sbatch: error: Batch job submission failed: "
    away = failure("sbatch", f"{base}Unable to contact slurm controller (connect failure)")
    assert isinstance(away, Away)
    assert not away.heard
    for words in ("Socket timed out on send/recv operation", "Unexpected missing socket error"):
        late = failure("sbatch", f"{base}{words}")
        assert isinstance(late, Away)
        assert late.heard
    refused = failure("sbatch", f"sbatch: error: Memory\n{base}Requested node configuration is not available")
    assert isinstance(refused, Refused)
    assert str(refused).endswith("Requested node configuration is not available")
    lost = failure("sinfo", "sinfo: error: fetch_config\nsinfo: fatal: Could not establish a configuration source")
    assert isinstance(lost, Away)
    assert not lost.heard
    assert "SLURM_CONF" in str(lost)


# ---------------------------------------------------------------------------- what it is told

counts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["n1", "n2", "n3", "n4"])),
    st.integers(1, 3),
    min_size=1,
)
demands = st.fixed_dictionaries(
    {"cpu": st.integers(1, 3).map(lambda n: n * MILLI)},
    optional={
        "memory": st.integers(1, 5_000_000).map(lambda n: n * MILLI),
        "gpu": st.integers(0, 2).map(lambda n: n * MILLI),
    },
)


@given(counts, st.fixed_dictionaries({"a": demands, "b": demands, "c": demands}))
def test_layout_takes_what_was_asked(counts: dict[tuple[str, str], int], asked: dict[str, dict[str, int]]) -> None:
    """Each server is in one component, which takes of it all that its tasks ask for, and gives each its berth."""
    places = [Place(where, role, count) for (role, where), count in counts.items()]
    roles = tuple(
        Role(role, sum(p.count for p in places if p.role == role), asked[role]) for role in {p.role for p in places}
    )
    found = layout(Job("j", "t", roles), places)
    assert sorted(name for part in found for name in part.nodes) == sorted({place.server for place in places})
    assert Counter(place for part in found for place in part.places) == Counter(places)
    for part in found:
        for name in part.nodes:
            here = [place for place in places if place.server == name]
            total = {key: sum(asked[p.role].get(key, 0) * p.count for p in here) for key in ("cpu", "memory", "gpu")}
            assert part.tasks is not None
            assert part.tasks * part.cpus * MILLI == total["cpu"]
            assert part.memory_mib is not None
            assert total["memory"] <= part.memory_mib * MIB < total["memory"] + MIB + (0 if total["memory"] else 1)
            assert dict(part.gres).get("gpu", 0) * MILLI == total["gpu"]
            if part.alike:
                assert part.tasks == sum(place.count for place in here)


def told(job: Job, *places: Place, tmp: Path = Path("/var/berth"), **changes: object) -> tuple[list[str], str]:
    given = SlurmSettings(spool=tmp).replace(**changes)
    found = submission(Start(job.id, 1, places), job, given, INSTANCE)
    return sbatch_arguments(found), found.script


ONE = Job("j", "t", (Role("w", 2, {"cpu": MILLI, "memory": 5 * MIB, "gpu": MILLI}),), payload={"command": ["true"]})


def test_sbatch_arguments() -> None:
    words, _ = told(ONE.replace(estimate=90.0), Place("n1", "w", 1), Place("n2", "w", 1))
    assert "--nodelist=n1,n2" in words
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=5M", "--gres=gpu:1", "--no-requeue"} <= set(
        words
    )
    assert f"--comment={write_tag(INSTANCE, 'j', 1)}" in words
    assert not any(word.startswith("--time") for word in words)
    words, _ = told(ONE.replace(limit=90.0), Place("n1", "w", 1), Place("n2", "w", 1))
    assert "--time=3" in words  # with a minute of grace, so that berth ends the job first
    words, _ = told(ONE, Place("n1", "w", 2), Place("n2", "w", 1))
    assert words.count(":") == 1
    assert words.count(f"--comment={write_tag(INSTANCE, 'j', 1)}") == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"roles": (Role("w", 1, {"cpu": 500}),)}, "whole units of cpu, and a task of w asks for 500m"),
        ({"roles": (Role("w", 1, {"gpu": MILLI}),)}, "at least one CPU"),
        ({"payload": {}}, "neither a command nor a script"),
        ({"payload": {"script": "echo\r\n"}}, "Unix line breaks"),
        ({"payload": {"command": ["a\0b"]}}, "null characters"),
        ({"payload": {"command": ["true"], "environment": {"A=B": "c"}}}, "cannot be a variable"),
        ({"payload": {"command": ["x" * 200_000]}}, "at most 120000 bytes"),
    ],
)
def test_what_slurm_cannot_run_is_said(change: dict[str, object], said: str) -> None:
    job = ONE.replace(**{"roles": (Role("w", 1, {"cpu": MILLI}),), **change})
    with pytest.raises(NotPossible, match=said):
        told(job, Place("n1", "w", 1))


def run_here(script: str, folder: Path) -> tuple[int, bytes]:
    """Run a batch script with a shell function in place of srun, which runs its command once."""
    shim = 'srun() { SLURM_PROCID=0 SLURMD_NODENAME=n1 "${@: -3}"; }\n'
    done = subprocess.run(["bash"], input=(shim + script).encode(), stdout=subprocess.PIPE, cwd=folder, env={})
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("#!/usr/bin/env python3\n#SBATCH --array=1-9\nprint('#SBATCH')\nraise SystemExit(3)", b"#SBATCH\n"),
        ("echo hi $0 | cut -c 1-3; exit 3", b"hi \n"),
        ("#!/bin/bash -e\ncat <<END-OF-SCRIPT\n$((1 + 1))\nEND-OF-SCRIPT\nexit 3\necho never", b"2\n"),
    ],
)
def test_a_script_runs_as_its_first_line_says(script: str, printed: bytes, tmp_path: Path) -> None:
    """It leaves its marks, and run a second time it ends by the signal of those that have run."""
    (tmp_path / "output").mkdir()
    _, text = told(ONE.replace(payload={"script": script}), Place("n1", "w", 2), tmp=tmp_path)
    assert text.startswith("#!/bin/bash -p\n_mark=")  # sbatch looks for options in comments at the top only
    assert run_here(text, tmp_path) == (3, printed)
    mark = read_mark(mark_of(tmp_path / "output", INSTANCE, "j", 1))
    assert mark is not None
    assert mark.end(("j", 1)) == Failed(mark.ended or 0.0, "j", 1, "it ended with exit code 3", "job")
    assert run_here(text, tmp_path) == (-AGAIN, b"")


def test_marks_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    assert read_mark(path) is None
    for text in ("", "began soon\n", "began 1.5\nended 2.5 0\nmore", "x" * 10_000):
        path.write_text(text)
        assert read_mark(path) is None
    path.write_text("began 1.5\n")
    assert read_mark(path) == Mark(1.5)
    assert Mark(1.5).end(("j", 1)) is None
    path.write_text("began 1.5\nended 4.0 0\n")
    found = read_mark(path)
    assert found is not None
    assert found.end(("j", 1)) == Finished(4.0, "j", 1, 2.5)
    (tmp_path / "link").symlink_to(path)
    assert read_mark(tmp_path / "link") is None


@pytest.mark.parametrize(
    ("retention", "left"),
    [(3600.0, {"mark 1"}), (36 * 3600.0, {"out 1", "mark 1"}), (math.inf, {"out 1", "mark 1", "out 2"})],
)
def test_marks_stay_for_a_day_and_as_long_as_their_outputs(tmp_path: Path, retention: float, left: set[str]) -> None:
    """The first ended half a day ago, the second two days ago."""
    for number, hours, secret in ((1, 12.0, ".0f"), (2, 48.0, "")):
        for name in (f"j.{number}.out", f"j.{number}.{INSTANCE}{secret}.mark"):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (time.time() - hours * 3600.0,) * 2)
    sweep(tmp_path, INSTANCE, retention, ())
    found = {f"{path.name.rpartition('.')[2]} {path.name.split('.')[1]}" for path in tmp_path.iterdir()}
    assert found == left


texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@settings(max_examples=25, deadline=None)
@given(st.lists(texts, max_size=4))
def test_words_of_a_command_reach_the_task(words: list[str]) -> None:
    """What the batch script would give to srun is a shell text whose words are the command's, whatever is in them."""
    show = ["printf", "%s\\0", "first", *words]
    _, script = told(ONE.replace(payload={"command": show}), Place("n1", "w", 2))
    assert "\r" not in script
    code, printed = run_here(script, Path("/"))
    assert code == 0
    assert printed.split(b"\0")[:-1] == [word.encode() for word in show[2:]]


@given(texts)
def test_quoted_words(text: str) -> None:
    assert shlex.split(quote(text.replace("\r", ""))) == [text.replace("\r", "")]


# ---------------------------------------------------------------------------- ends, memory, settings


def ended(*states: str, **more: object) -> Finished | Failed:
    job = SlurmJob(1, frozenset(states), start=100.0, end=130.0, nodes=("n1",), **more)  # type: ignore[arg-type]
    return how_it_ended(AttemptRecord(("j", 1), asked=90.0), [job], {}, 131.0)


def test_how_attempts_end() -> None:
    assert isinstance(ended("COMPLETED"), Finished)
    for state, fault, reason in (
        ("FAILED", "job", "exit code 3"),
        ("TIMEOUT", "job", "time limit of 5 min"),
        ("OUT_OF_MEMORY", "job", "memory"),
        ("NODE_FAIL", "server", "lost node n1"),
        ("CANCELLED", "cancelled", "not by berth"),
        ("PREEMPTED", "engine", "another job"),
    ):
        end = ended(state, exit_code=3, limit=300.0)
        assert isinstance(end, Failed)
        assert end.fault == fault
        assert reason in end.reason
    launched, late = ended("FAILED", signal=LAUNCH), ended("TIMEOUT", signal=LAUNCH, limit=300.0)
    assert isinstance(launched, Failed)
    assert isinstance(late, Failed)
    assert (launched.fault, late.fault) == ("engine", "job")


@pytest.mark.parametrize("turns", [0, 1, 2, 3, None])
def test_a_command_is_over_when_its_task_is_cancelled_however_often(turns: int | None, tmp_path: Path) -> None:
    """Cancelled after so many turns of the loop, or when it runs."""
    begun = tmp_path / "begun"

    async def run() -> None:
        task = asyncio.create_task(SlurmCommands(SlurmSettings())._ask("sh", "-c", f"touch {begun}; exec sleep 60"))
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        if turns is None:
            await eventually_async(begun.exists, what="the command does not run")
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    gc.collect()  # a process that is left warns here


def test_what_the_script_of_an_attempt_wrote_stands_above_what_a_killed_slurmctld_makes_up() -> None:
    record = AttemptRecord(("j", 1), asked=90.0)
    for state in ("FAILED", "CANCELLED", "NODE_FAIL"):
        job = SlurmJob(1, frozenset({state}), start=100.0, end=130.0, nodes=("n1",), exit_code=1)
        end = how_it_ended(record, [job], {}, 131.0, Mark(100.0, 129.0, 0))
        assert isinstance(end, Finished)
        assert end.seconds == 29.0
    failed = SlurmJob(1, frozenset({"FAILED"}), start=100.0, end=130.0, nodes=("n1",), exit_code=3)
    assert isinstance(how_it_ended(record, [failed], {}, 131.0, Mark(100.0, 129.0, 3)), Failed)
    assert isinstance(how_it_ended(record, [failed], {}, 131.0, Mark(100.0)), Failed)


def test_times_are_narrowed_by_looks() -> None:
    """Slurm tells whole seconds; what was seen between two looks happened between them."""
    job = SlurmJob(1, frozenset({"COMPLETED"}), start=100.0, end=130.0)
    record = AttemptRecord(("j", 1), asked=90.0, waited=100.4)
    assert when_it_began(record, [job], 100.6) == pytest.approx(100.5)
    record.started, record.ran = 100.5, 130.2
    end = how_it_ended(record, [job], {}, 130.4)
    assert isinstance(end, Finished)
    assert end.seconds == pytest.approx(29.8)
    record.hooked = {"began": 100.25, "ended": 130.75}
    assert when_it_began(record, [job], 200.0) == 100.25
    assert how_it_ended(record, [job], {}, 200.0).time == 130.75


def test_a_spool_is_for_one_store_until_its_jobs_are_over(tmp_path: Path) -> None:
    first, second = Owner("aa", "first.db"), Owner("bb", "second.db")
    spool = Spool(tmp_path, first)
    record, instance = spool.asked(("a", 1), (Place("n1", "w", 1),)), spool.instance
    spool.close()
    with pytest.raises(InvalidInput, match=r"spool: .* there are jobs of another store .*such as a; of first\.db"):
        Spool(tmp_path, second)
    spool = Spool(tmp_path, first)
    assert (spool.instance, set(spool.records)) == (instance, {("a", 1)})
    spool.ended(record, Finished(2.0, "a", 1, 1.0))
    spool.close()
    spool = Spool(tmp_path, second)
    assert spool.instance != instance
    assert not spool.records
    spool.close()
    spool = Spool(tmp_path, second)
    assert not spool.records
    spool.close()


def test_by_default_each_store_has_a_spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert SlurmSettings().of(Owner("aa")).spool == tmp_path / "berth" / "slurm" / "aa"
    assert SlurmSettings(spool=tmp_path / "mine").of(Owner("aa")).spool == tmp_path / "mine"


def test_settings_are_checked_without_making_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at the start left a second spool in the home directory, in which nothing was ever remembered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    check_engine("slurm")
    file = tmp_path / "slurm.yaml"
    file.write_text(f"output: {tmp_path}/output\nhooks: {tmp_path}/hooks\n")
    check_engine(f"slurm:{file}")
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.yaml"]
    file.write_text(f"conf: {tmp_path}/none.conf\n")
    with pytest.raises(InvalidInput, match=r"slurm\.yaml: conf: got .*none\.conf"):
        check_engine(f"slurm:{file}")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"one\ntwo  words\n\n", "two words"),
        (b"no such model\nsrun: error: n1: task 0: Exited with exit code 3\n", "no such model"),
        (b"no such model\nslurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED ***\nTerminated\n", "no such model"),
        (b"srun: error: Unable to create step\n", "srun: error: Unable to create step"),
        (b"", ""),
        (b"\x1b[31mred\x00\n", "[31mred"),
        (b"x" * 10_000, "x" * 300),
        (b"\xff\n", "\ufffd"),
    ],
)
def test_the_last_words_of_a_job(said: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(said)
    assert last_words(tmp_path / "out") == words
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert last_words(tmp_path / "link") == ""
    assert last_words(tmp_path / "nothing") == ""
    assert last_words(tmp_path) == ""


def test_the_spool_remembers(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    place = (Place("n1", "w", 2),)
    first, second, third = (spool.asked((name, 1), place) for name in "abc")
    fourth = spool.asked(("d", 1), place, user="ann", secret="0f")
    spool.taken(first, 7)
    spool.ended(second, Failed(5.0, "b", 1, "why", "engine"))
    spool.forgotten(third)
    with pytest.raises(InvalidInput, match="service uses: set `spool` to another"):
        Spool(tmp_path)
    spool.close()
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"what": "ended", "jo')
    again = Spool(tmp_path)
    assert again.instance == spool.instance
    assert set(again.records) == {("a", 1), ("b", 1), fourth.key}
    assert [again.records[name, 1].user for name in "abd"] == ["", "", "ann"]
    assert [again.records[name, 1].secret for name in "abd"] == ["", "", "0f"]
    assert again.records["a", 1].slurm == 7
    assert again.records["a", 1].places == place
    assert again.records["b", 1].end == Failed(5.0, "b", 1, "why", "engine")
    again.close()
    path = tmp_path / "attempts.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(InvalidInput, match=r"attempts.jsonl:1"):
        Spool(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("polls: 1", "yaml:1: polls: got an unknown key, expected another; did you mean 'poll'?"),
        ("poll: fast", "poll: got 'fast', expected a duration"),
        ("poll: 0", "poll: got 0, expected a duration of at least 0.01 s"),
        ("partition: a b", "partition: got 'a b', expected the name of a partition"),
        ("users: 1", "users: got 1, expected true or false"),
        ("rest: localhost", "rest: got 'localhost', expected http"),
        ("spool: 5", "spool: got 5, expected a path"),
        ("retention: soon", "retention: got 'soon', expected a duration"),
        ("system_users: daemon", "system_users: got 'daemon', expected a list of names"),
        ("- 1", "got a list, expected a mapping"),
        ("a: [", "expected YAML"),
        ("poll: 1\npoll: 2", "yaml:2: poll: got the same key again"),
        ("rest: http://localhost:1\ncompanion: shared", "not both rest and companion"),
    ],
)
def test_bad_settings_are_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=re.escape(said)) as error:
        read_settings(path)
    assert str(error.value).startswith(str(path))


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text("conf: /etc/slurm/other.conf\npartition: main\npoll: 2s\npatience: 1m\ncompanion: shared\n")
    found = read_settings(path)
    assert (found.conf, found.poll, found.patience) == (Path("/etc/slurm/other.conf"), 2.0, 60.0)
    path.write_text("retention: 2d\nsystem_users: [daemon]\n")
    assert (read_settings(path).retention, read_settings(path).system_users) == (172800.0, ("daemon",))
    path.write_text("retention: forever\n")
    assert read_settings(path).retention == math.inf
    assert read_settings(path).replace(poll=2.0).retention == math.inf
    path.write_text("")
    assert read_settings(path) == SlurmSettings()
    with pytest.raises(InvalidInput, match="no such file, expected a settings file"):
        read_settings(tmp_path / "none")


def test_scripts_for_operators_are_printed(tmp_path: Path) -> None:
    hook = CliRunner().invoke(app, ["slurm", "hook", str(tmp_path / "it's here")])
    assert hook.exit_code == 0
    assert subprocess.run(["sh", "-n"], input=hook.output.encode()).returncode == 0
    assert "@" not in CliRunner().invoke(app, ["slurm", "hold", "night"]).output.replace("._@-", "")
    assert 'BERTH_PARTITION = "night"' in hold_script("night")
    with pytest.raises(InvalidInput, match="name of a partition"):
        hold_script('x" os.execute("id")')


def test_a_hook_tells_and_never_waits(tmp_path: Path) -> None:
    """Nobody listens first; then the same lines are read, and those of others or with odd comments are not."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    script = hook_script(folder)

    def call(context: str, comment: str, job: str = "7") -> None:
        env = {"SLURM_SCRIPT_CONTEXT": context, "SLURM_JOB_COMMENT": comment, "SLURM_JOB_ID": job}
        assert subprocess.run(["sh"], input=script.encode(), env=env, timeout=240).returncode == 0

    tag = write_tag(INSTANCE, "j", 1)
    call("prolog_slurmctld", tag)
    called: list[int] = []
    hooks = Hooks(folder, INSTANCE, lambda: called.append(1))
    call("epilog_slurmctld", tag)
    call("epilog_slurmctld", f"{tag}\n1.0 ended {write_tag(INSTANCE, 'other', 1)}")
    call("epilog_slurmctld", write_tag("ffff", "k", 1))
    call("prolog_slurmctld", "my job")
    call("epilog_slurmctld", tag, job="8")  # of another job with the same comment
    hooks.read()
    assert not hooks.of(("other", 1), [7])
    assert not hooks.of(("k", 1), [7])
    assert hooks.of(("j", 1), []) == {}
    told = hooks.of(("j", 1), [7])
    assert told["began"] <= told["ended"]
    assert hooks.of(("j", 1), [8]).keys() == {"ended"}
    assert hooks.of(("j", 1), [8])["ended"] > told["ended"]  # components of one job: the last of them counts
    hooks.forget(("j", 1))
    assert not hooks.of(("j", 1), [7, 8])
    hooks.close()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    call("prolog_slurmctld", tag)  # even where its directory is not there


def test_who_is_an_ordinary_user(tmp_path: Path) -> None:
    file = tmp_path / "login.defs"
    assert ordinary_uids(file) == range(1000, 60001)
    file.write_text("# UID_MIN 5\nUID_MAX 50000\n")
    ordinary_uids.cache_clear()
    assert ordinary_uids(file) == range(1000, 50001)
    file.write_text("# UID_MIN 5\n  UID_MIN\t\t  500\nUID_MAX 60000\n")
    ordinary_uids.cache_clear()
    assert ordinary_uids(file) == range(500, 60001)


def test_the_default_output_of_users_is_not_in_the_home_of_root() -> None:
    settings = SlurmSettings(users=True)
    assert settings.outputs == Path("/var/lib/berth/output")
    assert settings.of(Owner("aa")).outputs == Path("/var/lib/berth/output/aa")
    assert SlurmSettings(users=True, output=Path("/srv/out")).of(Owner("aa")).outputs == Path("/srv/out")
