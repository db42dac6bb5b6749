"""The commands against a running service: what they print, and their exit codes."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving

Run = Callable[..., tuple[int, str, str]]
MANIFEST = """
apiVersion: berth/v1
kind: Job
metadata: {name: from-manifest}
spec: {type: train, tasks: 2, resources: {cpu: 1}, work: 1h}
---
{name: plain, resources: {cpu: 500m}, work: 1h}
"""
SCRIPT = """#!/bin/sh
#BERTH --name=from-script --tasks=2
#BERTH --resources=cpu=1,mem=2G --time=10:00
srun hostname
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service in which little time passes."""
    with serving(tmp_path_factory.mktemp("cli")) as found:
        yield found


@pytest.fixture
def run(live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; exit code, output and errors."""
    monkeypatch.setenv("BERTH_URL", live.url)
    monkeypatch.delenv("BERTH_TOKEN", raising=False)

    def ran(*words: str, text: str | None = None) -> tuple[int, str, str]:
        if text is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return ran


def test_a_job_runs_where_it_was_submitted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("submit", "-J", "here", "--work", "1h", "--", "ls")[0] == 0
    assert show(run, "here")["payload"]["workdir"] == str(tmp_path)
    assert run("submit", "-J", "there", "-D", "/srv", "--work", "1h", "--", "ls")[0] == 0
    assert show(run, "there")["payload"]["workdir"] == "/srv"
    script = "#!/bin/sh\n#BERTH --name=script-there --chdir=/opt --work=1h\nls\n"
    assert run("submit", "-f", "-", text=script)[0] == 0
    assert show(run, "script-there")["payload"]["workdir"] == "/opt"
    assert run("submit", "-J", "nothing-to-run", "--work", "1h")[0] == 0
    assert "workdir" not in show(run, "nothing-to-run")["payload"]


def test_an_engine_that_is_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, "--engine", f"simulated:unix:{tmp_path / 'nobody'}") as live:
        monkeypatch.setenv("BERTH_URL", live.url)
        assert main(["jobs"]) == 0
        said = capsys.readouterr()
        assert said.out == "no jobs\n"
        assert said.err.startswith("berth: warning: the engine cannot be reached: no engine at ")
        assert said.err.endswith("; what follows may be out of date\n")


def test_servers_that_are_learned_as_one_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {
        "servers": [{"name": f"n{i}", "capacity": {"cpu": 4}, "labels": {"class": "ab"[i % 2]}} for i in range(4)]
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    with serving(tmp_path, "--engine", f"simulated:{tmp_path / 'cluster.yaml'}", "--learn-by", "class") as live:
        monkeypatch.setenv("BERTH_URL", live.url)
        assert main(["submit", "-J", "quick", "-r", "cpu=1", "--work", "100ms"]) == 0
        live.wait_for("/v1/jobs/quick", lambda job: job["phase"] == "finished")
        capsys.readouterr()
        assert main(["learned"]) == 0
        (_, *lines) = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["local.quick"] * len(lines)
        assert lines[0].split()[2] == "1"
        assert {one["group"] for one in live.ask("GET", "/v1/learned")} == {"class=a", "class=b"}


def show(run: Run, job: str) -> dict[str, Any]:
    code, out, _ = run("job", "show", job, "-o", "json")
    assert code == 0
    return json.loads(out)  # type: ignore[no-any-return]


def test_a_job_from_options(run: Run) -> None:
    words = [
        "-J",
        "opts",
        "-n",
        "3",
        "--minimum",
        "2",
        "-r",
        "cpu=1,mem=2G",
        "--type",
        "etl",
        "--team",
        "t",
        "-t",
        "2h",
    ]
    code, out, _ = run(
        "submit", *words, "--needs", "class=cpu", "--priority", "5", "--retries", "1", "--", "echo", "-n"
    )
    assert (code, out) == (0, "submitted opts\n")
    job = show(run, "opts")
    assert job["roles"] == {"task": {"count": 3, "minimum": 2, "resources": {"cpu": "1", "memory": "2Gi"}}}
    assert (job["type"], job["team"], job["priority"], job["retries"], job["limit"]) == ("etl", "t", 5, 1, 7200.0)
    assert job["needs"] == {"class": "cpu"}
    assert job["payload"] == {"command": ["echo", "-n"], "workdir": os.getcwd()}


def test_jobs_from_files_and_standard_input(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    assert run("submit", "-f", str(file), "--parsable")[:2] == (0, "from-manifest\nplain\n")
    assert show(run, "from-manifest")["type"] == "train"
    assert run("submit", "-f", "-", text=SCRIPT)[:2] == (0, "submitted from-script\n")
    job = show(run, "from-script")
    assert job["payload"] == {"script": SCRIPT, "workdir": os.getcwd()}
    assert job["limit"] == 600.0
    code, out, _ = run("submit", "-f", "-", "-J", "changed", "-n", "1", "-o", "json", text=SCRIPT)
    assert code == 0
    assert json.loads(out)[0]["id"] == "changed"
    assert json.loads(out)[0]["roles"]["task"]["count"] == 1


def test_a_script_without_f_is_hinted_at(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    file.write_text(SCRIPT, encoding="utf-8")
    code, out, err = run("submit", str(file))
    assert (code, out) == (2, "")
    assert f"expected -f {file} to submit the script" in err
    assert run("submit", "-J", "as-command", "sh", str(file), "--epochs", "3")[::2] == (0, "")
    file.write_text("#!/bin/sh\nhostname\n", encoding="utf-8")
    code, out, err = run("submit", "-J", "hinted", str(file))
    assert (code, out) == (0, "submitted hinted\n")
    assert err == f"berth: hint: {file} is taken for a command; to submit the script itself: -f {file}\n"
    assert show(run, "hinted")["payload"] == {"command": [str(file)], "workdir": os.getcwd()}


def test_the_same_key_twice_is_one_job(run: Run) -> None:
    first = run("submit", "--key", "k1", "-r", "cpu=1", "--parsable")
    assert first[0] == 0
    assert run("submit", "--key", "k1", "-r", "cpu=1", "--parsable") == first
    code, _, err = run("submit", "--key", "k1", "-r", "cpu=2")
    assert code == 6
    assert "conflict" in err


def test_what_the_service_refuses_has_the_exit_code_of_its_kind(run: Run) -> None:
    for words in (["submit", "-r", "cpu=1", "-q", "nowhere"], ["plan", "-r", "cpu=1", "-q", "nowhere"]):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "nowhere" in err
        assert "a queue that takes jobs: default" in err
    assert run("submit", "-J", "taken", "-r", "cpu=1")[0] == 0
    code, _, err = run("submit", "-J", "taken", "-r", "cpu=1")
    assert code == 6
    assert "taken" in err


def test_a_job_that_no_server_could_run_is_accepted_with_a_warning(run: Run) -> None:
    for name, words, why in (
        ("w1", ["-r", "cpu=1,tpu=1"], "no server has tpu"),
        ("w2", ["-r", "cpu=1", "--needs", "class=tpu"], "no server has the label class=tpu"),
        ("w3", ["-r", "gpu=66"], "it would not fit even if nothing ran"),
    ):
        code, out, err = run("submit", "-J", name, *words)
        assert (code, out) == (0, f"submitted {name}\n")
        assert err == f"berth: warning: {name}: {why}\n"
        assert run("job", "cancel", name)[0] == 0
    assert run("submit", "-J", "w4", "-r", "cpu=1")[2] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit"], "a COMMAND"),
        (["submit", "-r", "cpu=many"], "cpu"),
        (["submit", "-r", "cpu"], "cpu=4,mem=16G"),
        (["submit", "--needs", "class"], "label=value"),
        (["submit", "-n", "0", "-r", "cpu=1"], "--tasks"),
        (["submit", "-f", "/nowhere"], "/nowhere"),
        (["submit", "-t", "soon", "-r", "cpu=1"], "duration"),
        (["submit", "-J", "../x", "-r", "cpu=1"], "name"),
        (["jobs", "--phase", "sleeping"], "--phase"),
        (["jobs", "--url", "ftp://x"], "--url"),
        (["jobs", "-o", "xml"], "xml"),
        (["token", "create", "x", "--role", "king"], "'--role': 'king' is not one of"),
        (["servers", "drain"], "server"),
        (["decisions", "--limit", "0"], "--limit"),
    ],
)
def test_bad_input_is_told_before_anything_is_sent(run: Run, words: list[str], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("berth: error: ")
    assert err.count("\n") == 1
    assert said in err


def test_bad_files_are_told_with_their_line(run: Run) -> None:
    code, _, err = run("submit", "-f", "-", text="#!/bin/sh\n#BERTH --tasks=two\n")
    assert code == 2
    assert "standard input:2" in err or "line 2" in err
    code, _, err = run("submit", "-f", "-", text="tasks: [1\n")
    assert code == 2
    assert "YAML" in err


def test_jobs_are_listed_with_filters_and_in_every_form(run: Run, live: Live) -> None:
    for name, kind, team in (("l1", "a1", "x"), ("l2", "a1", "y"), ("l3", "a2", "x")):
        assert run("submit", "-J", name, "--type", kind, "--team", team, "-r", "cpu=1", "--work", "1h")[0] == 0

    def ids(*words: str) -> list[str]:
        code, out, _ = run("jobs", *words, "-o", "json")
        assert code == 0
        return [job["id"] for job in json.loads(out)]

    assert ids("--type", "a1") == ["l2", "l1"]
    assert ids("--type", "a1", "--team", "x") == ["l1"]
    assert ids("--user", "nobody") == []
    assert len(ids("--limit", "2")) == 2
    out = run("jobs", "--type", "a1", "-o", "yaml")[1]
    assert [job["id"] for job in yaml.safe_load(out)] == ["l2", "l1"]
    out = run("jobs", "--type", "a1")[1]
    lines = out.splitlines()
    assert lines[0].split() == ["ID", "TYPE", "PHASE", "USER", "QUEUE", "TASKS", "SUBMITTED", "WHERE"]
    assert [line.split()[0] for line in lines[1:]] == ["l2", "l1"]
    assert "RESOURCES" in run("jobs", "-o", "wide")[1].splitlines()[0]
    rows = list(csv.DictReader(io.StringIO(run("jobs", "--type", "a1", "-o", "csv")[1])))
    assert [(row["id"], row["tasks"], row["resources"]) for row in rows] == [
        (n, "1", "task:cpu=1") for n in ("l2", "l1")
    ]
    assert run("learned", "-o", "wide")[0] == 2
    assert run("jobs", "--user", "nobody")[:2] == (0, "no jobs\n")
    assert run("job", "cancel", "l1", "l2")[0] == 0
    for name in ("l1", "l2"):
        live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] == "cancelled")
    assert {"l1", "l2"} <= set(ids("--phase", "cancelled"))
    assert "l1" not in ids()
    assert "l1" in ids("--all")


def test_a_job_is_shown_explained_and_ended(run: Run) -> None:
    assert run("submit", "-J", "huge", "-n", "999", "-r", "gpu=4")[0] == 0
    code, out, _ = run("job", "show", "huge")
    assert code == 0
    assert yaml.safe_load(out)["id"] == "huge"
    code, out, _ = run("job", "explain", "huge")
    assert code == 0
    assert "it would not fit" in out
    assert json.loads(run("job", "explain", "huge", "-o", "json")[1])["phase"] == "waiting"
    assert run("job", "cancel", "huge")[:2] == (0, "huge cancelled\n")
    assert run("job", "cancel", "huge")[:2] == (0, "huge cancelled\n")
    for words in (["job", "show", "nobody"], ["job", "cancel", "nobody"], ["job", "explain", "nobody"]):
        code, _, err = run(*words)
        assert code == 5
        assert "nobody" in err


def test_logs_of_an_engine_that_has_none(run: Run, live: Live) -> None:
    assert run("submit", "-J", "silent", "-r", "cpu=1", "--work", "1s")[0] == 0
    live.wait_for("/v1/jobs/silent", lambda job: job["attempt"] == 1)
    code, out, err = run("job", "logs", "silent", "--task", "0", "--tail", "5")
    assert (code, out) == (5, "")
    assert "berth cannot read output on this engine; the details of job silent say where its output is" in err
    assert run("submit", "-J", "not-begun", "-n", "999", "-r", "gpu=4")[0] == 0
    assert "job not-begun has not begun" in run("job", "logs", "not-begun")[2]
    assert run("job", "logs", "nobody")[0] == 5
    assert run("job", "logs", "silent", "--tail", "0")[0] == 2


def test_a_job_with_an_image_runs_where_the_image_says(run: Run) -> None:
    assert run("submit", "-J", "imaged", "--image", "busybox", "-r", "cpu=1", "--", "true")[0] == 0
    assert show(run, "imaged")["payload"] == {"command": ["true"], "image": "busybox"}
    assert run("submit", "-J", "moved", "--image", "busybox", "-D", "/srv", "-r", "cpu=1", "--", "true")[0] == 0
    assert show(run, "moved")["payload"]["workdir"] == "/srv"


def test_one_job_that_is_not_there_does_not_keep_others_from_their_end(run: Run) -> None:
    assert run("submit", "-J", "ends", "-n", "999", "-r", "gpu=4")[0] == 0
    code, out, err = run("job", "cancel", "nobody", "ends")
    assert code == 5
    assert out == "ends cancelled\n"
    assert "nobody" in err


def test_servers_are_listed_drained_and_resumed(run: Run) -> None:
    code, out, _ = run("servers")
    assert code == 0
    assert out.splitlines()[0].split() == ["NAME", "STATE", "FREE", "CAPACITY"]
    assert "LABELS" in run("servers", "-o", "wide")[1]
    assert run("servers", "drain", "cpu-3")[:2] == (0, "cpu-3 drained\n")
    states = {server["name"]: server["state"] for server in json.loads(run("servers", "-o", "json")[1])}
    assert states["cpu-3"] == "drained"
    assert run("servers", "resume", "cpu-3")[:2] == (0, "cpu-3 up\n")
    code, _, err = run("servers", "drain", "nobody")
    assert code == 5
    assert "nobody" in err


def test_a_plan_says_whether_it_would_start(run: Run) -> None:
    code, out, _ = run("plan", "-r", "cpu=1")
    assert code == 0
    assert out
    code, out, _ = run("plan", "-n", "999", "-r", "gpu=4", "-o", "json")
    assert code == 10
    assert json.loads(out)["starts"] is False
    assert run("plan", "-f", "-", text=MANIFEST)[0] == 0


def test_policies_are_switched_tried_and_played_again(run: Run, live: Live) -> None:
    assert run("submit", "-J", "played", "-r", "cpu=1", "--work", "100ms")[0] == 0
    live.wait_for("/v1/jobs/played", lambda job: job["phase"] == "finished")
    assert run("policy")[1].splitlines()[:3] == [
        "policy    in-order-best-fit",
        "wrapped   Leveled(in-order-best-fit)",
        "fallback  in-order-best-fit",
    ]
    assert run("policy", "switch", "best-fit", "--reason", "to see")[:2] == (0, "policy    best-fit\n")
    shown = json.loads(run("policy", "-o", "json")[1])
    assert (shown["policy"], shown["wrapped"]) == ("best-fit", "Leveled(Deferring(Gathering(best-fit)))")
    for words in (["switch", "in-order"], ["shadow", "in-order"], ["what-if", "in-order"]):
        code, _, err = run("policy", *words)
        assert code == 5
        assert "did you mean 'in-order-best-fit'?" in err
    assert run("policy", "shadow")[:2] == (0, "no shadow policy is set\n")
    assert run("policy", "shadow", "first-fit")[0] == 0
    assert json.loads(run("policy", "shadow", "-o", "json")[1])["policy"] == "first-fit"
    assert run("policy", "shadow", "--off")[0] == 0
    code, out, _ = run("policy", "what-if", "first-fit", "--hours", "1000")
    assert code == 0
    assert out.strip()
    code, _, err = run("policy", "what-if", "first-fit", "--hours", "-1")
    assert code == 2
    assert "hours" in err
    assert run("policy", "switch", "in-order-best-fit")[0] == 0


def test_learned_and_decisions(run: Run, live: Live) -> None:
    assert run("submit", "-J", "quick", "--type", "quick", "-r", "cpu=1", "--work", "100ms")[0] == 0
    live.wait_for("/v1/jobs/quick", lambda job: job["phase"] == "finished")
    code, out, _ = run("learned", "--type", "quick")
    assert code == 0
    assert out.splitlines()[0].split() == ["TYPE", "SERVER", "RUNS", "CUT", "SPEED", "95%", "LEVEL", "CLASS"]
    assert json.loads(run("learned", "--type", "quick", "-o", "json")[1])[0]["runs"] == 1
    assert run("learned", "--type", "nothing")[:2] == (0, "nothing yet: no job of type nothing has finished\n")
    code, out, _ = run("decisions", "--limit", "3")
    assert code == 0
    assert len(out.splitlines()) <= 4
    assert "quick" in run("decisions", "--limit", "1000")[1]


def test_nobody_there_is_its_own_exit_code(run: Run) -> None:
    for words in (["jobs"], ["servers"], ["submit", "-r", "cpu=1"], ["policy"]):
        code, out, err = run(*words, "--url", "http://127.0.0.1:9")
        assert (code, out) == (3, "")
        assert "berth serve" in err


def test_tokens_are_made_listed_and_revoked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(tmp_path / "berth.db")
    secrets = {}
    for name, role in (("eve", "read"), ("ann", "submit"), ("ops", "operate")):
        code, out, _ = run("token", "create", name, "--role", role, "--store", store)
        assert code == 0
        secrets[name] = out.strip()
    code, _, err = run("token", "create", "eve", "--store", store)
    assert code == 2
    assert "eve" in err
    code, out, _ = run("token", "list", "--store", store)
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["ann", "submit", "ann"],
        ["eve", "read", "eve"],
        ["ops", "operate", "ops"],
    ]
    assert not any(secret in out for secret in secrets.values())
    assert {token["role"] for token in json.loads(run("token", "list", "--store", store, "-o", "json")[1])} == {
        "read",
        "submit",
        "operate",
    }
    with serving(tmp_path) as guarded:
        monkeypatch.setenv("BERTH_URL", guarded.url)
        code, _, err = run("jobs")
        assert code == 4
        assert "BERTH_TOKEN_FILE" in err
        monkeypatch.setenv("BERTH_TOKEN", "berth_wrong")
        assert run("jobs")[0] == 4
        monkeypatch.setenv("BERTH_TOKEN", secrets["eve"])
        assert run("jobs")[0] == 0
        assert run("submit", "-r", "cpu=1")[0] == 4
        monkeypatch.delenv("BERTH_TOKEN")
        file = tmp_path / "token"
        file.write_text(secrets["ann"] + "\n", encoding="utf-8")
        monkeypatch.setenv("BERTH_TOKEN_FILE", str(file))
        assert run("submit", "-J", "mine", "-r", "cpu=1")[0] == 0
        assert json.loads(run("job", "show", "mine", "-o", "json")[1])["user"] == "ann"
        code, _, err = run("servers", "drain", "cpu-0")
        assert code == 4
        assert "operate" in err
        monkeypatch.setenv("BERTH_TOKEN_FILE", str(tmp_path / "none"))
        assert run("jobs")[0] == 2
    assert run("token", "revoke", "eve", "--store", store)[:2] == (0, "revoked eve\n")
    assert run("token", "revoke", "eve", "--store", store)[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "nope"], "in-order-best-fit"),
        (["--policy", "nope"], "escb-v"),
        (["--engine", "cloud"], "unknown engine 'cloud'"),
        (["--engine", "simulated:/no/such/file"], "/no/such/file"),
        (["--host", "0.0.0.0"], "berth token create"),
        (["--host", "300.1.1.1"], "300.1.1.1"),
        (["--faster", "0"], "faster"),
    ],
)
def test_a_start_that_is_refused_says_one_line_and_leaves_nothing(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers = logging.getLogger().handlers[:]
    assert main(["serve", "--port", "0", "--store", str(tmp_path / "new.db"), *words]) == 2
    assert logging.getLogger().handlers == handlers
    err = capsys.readouterr().err
    assert err.startswith("berth: error: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_the_first_token_closes_a_service_that_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.authenticator.FRESH", 0.1)
    with serving(tmp_path) as live:
        monkeypatch.setenv("BERTH_URL", live.url)
        assert run("jobs")[0] == 0
        code, out, _ = run("token", "create", "ops", "--role", "operate", "--store", str(live.store))
        assert code == 0
        eventually(lambda: run("jobs")[0], lambda code: code == 4, "the service stays open")
        monkeypatch.setenv("BERTH_TOKEN", out.strip())
        assert run("jobs")[0] == 0


def test_asking_for_tokens_makes_no_store(run: Run, tmp_path: Path) -> None:
    for words in (["list"], ["revoke", "ann"]):
        code, out, err = run("token", *words, "--store", str(tmp_path / "new.db"))
        assert (code, out) == (2, "")
        assert "expected a store that is there" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("berth pol", "policy"),
        ("berth policy switch best", "best-fit"),
        ("berth policy shadow in-", "in-order-best-fit"),
        ("berth jobs --phase w", "waiting"),
    ],
)
def test_shells_complete(
    typed: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_BERTH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert offered in capsys.readouterr().out.split()


def test_waiting_for_jobs_says_how_they_ended(run: Run, live: Live) -> None:
    quick = ("-r", "cpu=1", "--work", "100ms")
    assert run("submit", "-J", "soon", *quick)[0] == run("submit", "-J", "too", *quick)[0] == 0
    code, out, _ = run("job", "wait", "soon", "too", "--timeout", "30s")
    assert (code, out) == (0, "soon finished\ntoo finished\n")
    assert run("submit", "-J", "never", "-r", "cpu=1", "--work", "30d")[0] == 0
    assert run("job", "wait", "soon", "never", "--timeout", "200ms")[:2] == (9, "soon finished\n")
    assert run("job", "cancel", "never")[0] == 0
    code, out, _ = run("job", "wait", "never", "-o", "json")
    assert code == 8
    assert json.loads(out)[0]["phase"] == "cancelled"
    assert run("job", "wait", "nobody")[0] == 5


def test_tasks_may_be_kept_apart(run: Run, live: Live) -> None:
    assert run("submit", "-J", "apart", "-n", "3", "--per-server", "1", "-r", "cpu=1", "--work", "30d")[0] == 0
    live.wait_for("/v1/jobs/apart", lambda job: job["phase"] == "running")
    found = json.loads(run("job", "show", "apart", "-o", "json")[1])
    assert len({place["server"] for place in found["places"]}) == 3
    assert run("job", "cancel", "apart")[0] == 0
