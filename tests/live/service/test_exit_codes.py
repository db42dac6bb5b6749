"""Exit codes of the commands: every refusal has the one that docs/serve.md gives it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from berth.cli import main
from tests.live.service.live import Live, serving


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service without trouble."""
    with serving(tmp_path_factory.mktemp("well")) as found:
        yield found


TOO_MANY = "{name: a, resources: {cpu: 1}, roles: {w: {count: 2, minimum: 3}}}"
BAD_INPUT = [
    ["submit", "-r", "cpu=1", "-n", "2", "--minimum", "3"],
    ["submit", "-r", "cpu=1", "-q", "nowhere"],
    ["submit", "-r", "cpu=1", "--team", "../x"],
    ["submit", "-r", "cpu=1", "--key", "é"],
    ["submit", "-r", "cpu=1", "--key", "a" * 300],
    ["submit", "-r", "cpu=1", "--retries", "999999999"],
    ["submit", "-r", "cpu=1", "--priority", "9" * 30],
    ["submit", "-r", "cpu=1", "--work", "-5"],
    ["submit", "-r", "cpu=-1"],
    ["submit", "-r", "cpu=1e400"],
    ["submit", "-r", "cpu=1", "-n", "999999999"],
    ["submit", "-r", "cpu=1", "--type", "a b"],
    ["submit", "-f", "-"],
    ["plan", "-r", "cpu=1", "-n", "2", "--minimum", "3"],
    ["plan", "-r", "cpu=1", "-q", "nowhere"],
    ["plan"],
    ["jobs", "--user", "../x"],
    ["jobs", "--queue", "../x"],
    ["jobs", "--type", "a b"],
    ["jobs", "--limit", "0"],
    ["jobs", "--url", "http://"],
    ["job", "show", "../x"],
    ["job", "show", ""],
    ["job", "cancel", "a/b"],
    ["job", "explain", "a b"],
    ["job", "wait", "a", "--timeout", "soon"],
    ["servers", "drain", "../x"],
    ["servers", "resume", ".."],
    ["learned", "--type", "../x"],
    ["decisions", "--limit", "1001"],
    ["policy", "switch", ""],
    ["policy", "switch", "ogasched-gang"],
    ["policy", "switch", "best-fit:x=1"],
    ["policy", "switch", "fcfs", "--reason", "a" * 2000],
    ["policy", "shadow", "lcf"],
    ["policy", "what-if", "fcfs", "--hours", "nan"],
    ["policy", "what-if", "fcfs", "--hours", "-1"],
]
OTHERS = [
    (["submit", "-J", "taken", "-r", "cpu=1", "--work", "1h"], 6),
    (["submit", "--key", "used", "-r", "cpu=2"], 6),
    (["job", "show", "nobody"], 5),
    (["job", "cancel", "nobody"], 5),
    (["job", "wait", "nobody"], 5),
    (["servers", "drain", "nobody"], 5),
    (["policy", "switch", "nobody"], 5),
    (["policy", "what-if", "nobody"], 5),
    (["job", "wait", "taken", "--timeout", "10ms"], 9),
    (["job", "wait", "gone"], 8),
    (["plan", "-n", "999", "-r", "gpu=4"], 10),
    (["jobs", "--url", "http://127.0.0.1:9"], 3),
    (["jobs", "--url", "http://no-such-host.invalid"], 3),
]


@pytest.mark.parametrize(("words", "code"), [*((words, 2) for words in BAD_INPUT), *OTHERS])
def test_every_refusal_has_the_documented_exit_code(
    well: Live,
    words: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BERTH_URL", well.url)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TOO_MANY.encode())))
    if code != 2:
        for name, work, key in (("taken", "1h", "used"), ("gone", "2h", "gone")):
            main(["submit", "-J", name, "-r", "cpu=1", "--work", work, "--key", key])
        main(["job", "cancel", "gone"])
        if words == ["job", "wait", "gone"]:
            well.wait_for("/v1/jobs/gone", lambda job: job["phase"] == "cancelled")
    capsys.readouterr()
    assert main(words) == code
    said = capsys.readouterr()
    told = [
        line for line in said.err.splitlines() if " prepares lcf, " not in line
    ]  # where its kernels are compiled first
    assert code in (8, 9, 10) or (said.out == "" and told[0].startswith("berth: error: "))
