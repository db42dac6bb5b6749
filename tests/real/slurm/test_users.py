"""Slurm with several users: jobs run as their owners, and no user can read or decide what belongs to another."""

from __future__ import annotations

import asyncio
import operator
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest

from berth.cli import main
from berth.errors import InvalidInput
from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm import SlurmEngine, SlurmSettings, check_settings
from berth.live.engines.slurm.outputs import AGAIN, last_words, mark_of, read_mark
from berth.live.engines.slurm.submission import write_tag
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually, eventually_async
from tests.live.service.live import Live, serving, serving_process
from tests.real.slurm.shared import COMPANION, SharedSlurm
from tests.real.slurm.site import SlurmSite, driven

DEPLOY = Path(__file__).parents[3] / "deploy"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users and run jobs as them"),
    pytest.mark.skipif(shutil.which("useradd") is None, reason="useradd is not installed (Debian: passwd)"),
]


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[str, str]]:
    """Two users of this machine, each with a group of its own and one that they share."""
    some = secrets.token_hex(3)
    lab, names = f"lab{some}", (f"ann{some}", f"bob{some}")
    subprocess.run(["groupadd", lab], check=True)
    try:
        for name in names:
            subprocess.run(["useradd", "--create-home", "--user-group", "--groups", lab, name], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["userdel", "--remove", "--force", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["groupdel", lab], check=True)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody can go through; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="berth-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def site(cluster: SharedSlurm, tmp_path: Path, public: Path) -> SlurmSite:
    found = SlurmSite(cluster, tmp_path)
    found.settings = found.settings.replace(users=True, output=public / "output", hooks=cluster.hooks)
    return found


PLACES = (Place("n1", "w", 1), Place("n2", "w", 1))


def a_job(name: str, user: str, text: str, count: int = 1, **payload: object) -> Job:
    """A job whose tasks run a line of shell."""
    given = {"command": ["/bin/sh", "-c", text], **payload}
    return Job(name, "t", (Role("w", count, {"cpu": MILLI}),), user=user, payload=given)


def run_as(user: str, *command: str, cluster: SharedSlurm | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a user of this machine."""
    found = pwd.getpwnam(user)
    groups = os.getgrouplist(user, found.pw_gid)
    environment = None if cluster is None else cluster.environment
    return subprocess.run(
        command,
        user=found.pw_uid,
        group=found.pw_gid,
        extra_groups=groups,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )


def printed(site: SlurmSite, user: str, job: str) -> list[str]:
    return (site.settings.outputs / user / f"{job}.1.out").read_text().splitlines()


IDENTITY = 'echo "$(id -u) $(id -g) $(id -G | tr " " "\\n" | sort -n | tr "\\n" " ")"'


@pytest.mark.parametrize("places", [PLACES, (Place("n1", "w", 3), Place("n2", "w", 1))], ids=["even", "uneven"])
def test_a_job_runs_with_the_uid_the_gid_and_the_groups_of_its_user(
    site: SlurmSite, people: tuple[str, str], public: Path, places: Sequence[Place]
) -> None:
    """A file of root's group was read before, since every job had the group of berth."""
    ann, _ = people
    secret = public / "secret"
    secret.write_text("of root\n")
    secret.chmod(0o640)
    text = f"{IDENTITY}; cat {secret} 2>/dev/null; exit 0"
    count = sum(place.count for place in places)

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("who", 1, tuple(places)), a_job("who", ann, text, count))
            assert isinstance(await driver.ended("who"), Finished)
            script = Job(
                "batch", "t", (Role("w", 1, {"cpu": MILLI}),), user=ann, payload={"script": f"{text}\n", "workdir": "/"}
            )
            await driver.execute(Start("batch", 1, (Place("n3", "w", 1),)), script)
            assert isinstance(await driver.ended("batch"), Finished)

    asyncio.run(run())
    found = pwd.getpwnam(ann)
    groups = sorted(set(os.getgrouplist(ann, found.pw_gid)))
    assert len(groups) == 2
    said = f"{found.pw_uid} {found.pw_gid} {' '.join(map(str, groups))} "
    assert printed(site, ann, "who") == [said] * count
    assert printed(site, ann, "batch") == [said]


@pytest.mark.parametrize("name", ["root", "nobody", "daemon"])
def test_jobs_do_not_run_as_system_accounts(site: SlurmSite, name: str) -> None:
    """They are refused with the reason, once, unless the settings name the account."""
    id = f"as-{name}"
    job = a_job(id, name, IDENTITY, workdir="/")

    async def run(ends: type[Finished | Failed]) -> Finished | Failed:
        async with driven(site) as driver:
            await driver.execute(Start(id, 1, PLACES[:1]), job)
            end = await driver.ended(id)
            assert isinstance(end, ends)
            assert bool(site.numbers(id, 1)) == (ends is Finished)
            return end

    end = asyncio.run(run(Failed))
    uid = pwd.getpwnam(name).pw_uid
    assert isinstance(end, Failed)
    assert end.fault == "job"
    assert f"jobs do not run as the system account {name} (uid {uid})" in end.reason
    if name != "nobody":
        site.settings = site.settings.replace(system_users=(name,), spool=site.settings.spool / "other")
        asyncio.run(run(Finished))
        assert printed(site, name, id)[0].startswith(f"{uid} ")


def test_a_user_that_the_system_does_not_have(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("who", 1, PLACES[:1]), a_job("who", "nobody-has-this-name", "true"))
            end = await driver.ended("who")
            assert isinstance(end, Failed)
            assert end.reason == "nobody-has-this-name, as whom the job would run, is not a user of this system"

    asyncio.run(run())


def test_only_root_can_run_jobs_as_others(
    public: Path, people: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SlurmSettings(users=True, output=public / "output")
    check_settings(settings)
    uid = pwd.getpwnam(people[0]).pw_uid
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(InvalidInput, match=f"users: got berth runs as {people[0]}, expected false: only root can"):
        check_settings(settings)


def test_a_job_of_another_user_is_no_attempt(site: SlurmSite, people: tuple[str, str], public: Path) -> None:
    """Bob gives his jobs the comments of Ann's attempts: one that runs, and one that has not been started yet."""
    ann, bob = people
    instance, end = "", public / "end"

    def forge(job: str) -> str:
        words = ["--parsable", "-o", "/dev/null", f"--comment={write_tag(instance, job, 1)}", "--wrap", "true"]
        done = run_as(bob, "sbatch", *words, cluster=site.cluster)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(number: str) -> str:
        return site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").strip()

    async def run() -> None:
        nonlocal instance
        async with driven(site) as driver:
            text = "until [ -e $END ]; do sleep 0.1; done; echo ran"
            job = a_job("first", ann, text, environment={"END": str(end)})
            await driver.execute(Start("first", 1, PLACES[:1]), job)
            await driver.until(Started)
            instance = (site.settings.spool / "instance").read_text().strip()
            before = time.time()
            forged = [forge("first"), forge("second")]
            await eventually_async(lambda: {state(number) for number in forged}, {"COMPLETED"}.__eq__)  # not ended
            await driver.look()
            attempts = [(attempt.job, attempt.end) for attempt in (await driver.look()).attempts]
            if attempts != [("first", None)]:
                raise InvariantBroken(f"a job of another user counts as an attempt: {attempts}")
            end.touch()
            await driver.execute(Start("second", 1, PLACES[1:]), a_job("second", ann, "echo ran"))
            for name in ("first", "second"):
                assert isinstance(await driver.ended(name), Finished)
                assert printed(site, ann, name) == ["ran"]
            engine = driver._engine
            assert isinstance(engine, SlurmEngine)
            told = engine._spool.records["first", 1].hooked
            assert told["began"] < before  # though a hook has told of the forged job, which began later

    asyncio.run(run())


def test_output_is_private(site: SlurmSite, people: tuple[str, str]) -> None:
    """Bob can neither read what Ann's jobs print nor leave anything there."""
    ann, bob = people

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("first", 1, PLACES[:1]), a_job("first", ann, "echo mine"))
            assert isinstance(await driver.ended("first"), Finished)
            output = site.settings.outputs
            found = (output / ann).stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (pwd.getpwnam(ann).pw_uid, 0o700)
            assert run_as(bob, "cat", str(output / ann / "first.1.out")).returncode != 0
            for path in (output / "mark", output / ann / "mark"):
                assert run_as(bob, "touch", str(path)).returncode != 0
            assert run_as(ann, "cat", str(output / ann / "first.1.out")).stdout == "mine\n"
            (attempt,) = (await driver.look()).attempts
            assert attempt.details["output"] == str(output / ann / "first.1.out")

    asyncio.run(run())


def test_marks_cannot_be_made_beforehand(site: SlurmSite, people: tuple[str, str]) -> None:
    """A mark that lay there made a job finished of which nothing had run: its name now has a secret.

    Ann, whose directory it is, cannot know it before her job runs, and Bob cannot see it at all.
    """
    ann, bob = people

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("guarded", 1, PLACES[:1]), a_job("guarded", ann, "sleep 600"))
            await driver.until(Started)
            folder, spool = site.settings.outputs / ann, site.settings.spool
            await eventually_async(lambda: list(folder.glob("guarded.1.*.mark")), what="no mark")
            instance = (spool / "instance").read_text().strip()
            secret = next(folder.glob("guarded.1.*.mark")).name.split(".")[3]
            assert stat.S_IMODE((spool / "attempts.jsonl").stat().st_mode) == 0o600
            assert secret in (spool / "attempts.jsonl").read_text()
            (number,) = site.numbers("guarded", 1)
            for words in (
                ["scontrol", "show", "job", number],
                ["scontrol", "write", "batch_script", number, "-"],
                ["squeue", "--json"],
                ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr -cd '[:print:]'"],
            ):
                shown = run_as(bob, *words, cluster=site.cluster)
                assert shown.returncode == 0
                assert secret not in shown.stdout
            for name in (mark_of(folder, instance, "guessed", 1), mark_of(folder, instance, "guessed", 1, secret)):
                made = f"echo began 1.5 >{name}; echo ended 2.5 0 >>{name}"
                assert run_as(ann, "sh", "-c", made).returncode == 0
            await driver.execute(Start("guessed", 1, PLACES[:1]), a_job("guessed", ann, "echo ran"))
            end = await driver.ended("guessed")
            assert isinstance(end, Finished)
            assert end.time > 2.5
            assert printed(site, ann, "guessed") == ["ran"]

    asyncio.run(run())


def test_a_mark_of_another_user_decides_nothing(people: tuple[str, str], tmp_path: Path) -> None:
    mark = mark_of(tmp_path, "0a", "j", 1, "1b")
    mark.write_text("began 1.5\nended 2.5 0\n")
    assert read_mark(mark) is not None
    assert read_mark(mark, pwd.getpwnam(people[0]).pw_uid) is None
    os.chown(mark, pwd.getpwnam(people[0]).pw_uid, -1)
    assert read_mark(mark, pwd.getpwnam(people[0]).pw_uid) is not None


def test_a_script_of_a_user_does_not_run_twice(site: SlurmSite, people: tuple[str, str]) -> None:
    """A slurmctld that was killed may run a batch script again: the mark in the directory of its user ends it."""
    ann, _ = people
    mine = pwd.getpwnam(ann)

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("once", 1, PLACES[:1]), a_job("once", ann, "echo ran"))
            assert isinstance(await driver.ended("once"), Finished)
            (number,) = site.numbers("once", 1)
            script = site.settings.spool / "script"
            site.cluster.ask("scontrol", "write", "batch_script", number, str(script))
            words = [f"--uid={mine.pw_uid}", f"--gid={mine.pw_gid}", "--chdir=/", "-o", "/dev/null", str(script)]
            again = site.cluster.ask("sbatch", "--parsable", *words).strip()
            show = ("scontrol", "-o", "show", "job", again)
            said = await eventually_async(lambda: site.cluster.ask(*show), lambda said: "JobState=FAILED" in said)
            assert f"ExitCode=0:{AGAIN}" in said
            if printed(site, ann, "once") != ["ran"]:
                raise InvariantBroken(f"it ran twice: {printed(site, ann, 'once')}")

    asyncio.run(run())


@pytest.mark.slow  # like the jobs of one user (test_cluster.py), whose scripts differ in the directory of their marks
def test_slurmctld_is_killed_right_after_it_took_jobs_of_users(
    site: SlurmSite, people: tuple[str, str], public: Path
) -> None:
    """It forgets some of them: each ends once, and no attempt begins twice."""
    witness = public / "witness"
    witness.mkdir()
    witness.chmod(0o1777)
    text = f"echo $(id -un) >>{witness}/$BERTH_JOB.$BERTH_ATTEMPT; sleep 1"

    async def run() -> None:
        async with driven(site) as driver:
            jobs = {f"kill-{i}": a_job(f"kill-{i}", people[i % 2], text) for i in range(4)}
            attempts = dict.fromkeys(jobs, 1)
            starts = {name: Start(name, 1, (Place(f"n{i + 3}", "w", 1),)) for i, name in enumerate(jobs)}
            await asyncio.gather(*(driver.execute(starts[name], job) for name, job in jobs.items()))
            site.cluster.kill("slurmctld")
            site.cluster.begin("slurmctld")
            for name, job in jobs.items():
                while not isinstance(end := await driver.ended(name, attempts[name]), Finished):
                    assert end.fault == "engine"
                    attempts[name] += 1
                    await driver.execute(replace(starts[name], attempt=attempts[name]), job)
            for name, job in jobs.items():
                assert (witness / f"{name}.{attempts[name]}").exists()
                for path in witness.glob(f"{name}.*"):
                    if path.read_text() != f"{job.user}\n":
                        raise InvariantBroken(f"{path.name} began twice, or as another user: {path.read_text()!r}")

    asyncio.run(run())


def test_an_output_directory_that_others_can_write_is_refused(site: SlurmSite, people: tuple[str, str]) -> None:
    ann, bob = people
    uid = pwd.getpwnam(bob).pw_uid

    async def run() -> None:
        async with driven(site) as driver:
            folder = site.settings.outputs / ann
            folder.mkdir(0o700)
            os.chown(folder, uid, -1)
            await driver.execute(Start("first", 1, PLACES[:1]), a_job("first", ann, "true"))
            end = await driver.ended("first")
            assert isinstance(end, Failed)
            assert end.reason == f"its output directory {folder} must belong to {ann} and be writable by nobody else"

    asyncio.run(run())


def test_berth_reads_nothing_for_a_user_that_is_not_his(site: SlurmSite, people: tuple[str, str], public: Path) -> None:
    """The reason of a failure quotes the last line of the output: a link must not make it a line of another file."""
    ann, _ = people
    secret = public / "secret"
    secret.write_text("the password\n")
    secret.chmod(0o600)
    text = f"rm $OUT; ln -s {secret} $OUT; exit 3"

    async def run() -> None:
        async with driven(site) as driver:
            out = site.settings.outputs / ann / "link.1.out"
            job = a_job("link", ann, text, environment={"OUT": str(out)})
            await driver.execute(Start("link", 1, PLACES[:1]), job)
            end = await driver.ended("link")
            assert isinstance(end, Failed)
            assert end.reason == "it ended with exit code 3"
            assert "password" not in str(end)
            assert out.is_symlink()
            out.unlink()
            os.link(secret, out)
            assert last_words(out) == "the password"
            assert last_words(out, pwd.getpwnam(ann).pw_uid) == ""
            job = a_job("words", ann, "echo no such model; exit 3")
            await driver.execute(Start("words", 1, PLACES[:1]), job)
            end = await driver.ended("words")
            assert isinstance(end, Failed)
            assert (end.reason, end.last_output) == ("it ended with exit code 3", "no such model")

    asyncio.run(run())


def test_output_that_users_cannot_reach_is_refused_at_the_start(public: Path, people: tuple[str, str]) -> None:
    output = public / "closed" / "berth" / "output"
    settings = SlurmSettings(users=True, output=output)
    check_settings(settings)  # berth makes what is missing
    assert not (public / "closed").exists()
    output.mkdir(parents=True)
    for path in (output, *output.parents[:2]):
        path.chmod(0o755)
    check_settings(settings)
    closed = public / "closed"
    closed.chmod(0o700)
    with pytest.raises(InvalidInput) as error:
        check_settings(settings)
    said = f"output: got {output}, and {closed} has mode 700, expected a directory that every user can reach (chmod o+x"
    assert str(error.value).startswith(said)
    closed.chmod(0o777)
    with pytest.raises(InvalidInput, match=f"{closed} has mode 777, expected a directory that only root can change"):
        check_settings(settings)
    closed.chmod(0o1777)
    check_settings(settings)
    output.chmod(0o1777)
    with pytest.raises(InvalidInput, match=f"got {output} with mode 1777, expected a directory that only root"):
        check_settings(settings)
    output.chmod(0o755)
    os.chown(closed, pwd.getpwnam(people[0]).pw_uid, -1)
    with pytest.raises(InvalidInput, match="and belongs to uid"):
        check_settings(settings)
    link = public / "link"
    link.symlink_to("/var/lib")
    check_settings(settings.replace(output=link / "output"))
    os.lchown(link, pwd.getpwnam(people[0]).pw_uid, -1)
    with pytest.raises(InvalidInput, match=f"{link} is a link of uid"):
        check_settings(settings.replace(output=link / "output"))


def test_old_files_are_removed_while_berth_runs(
    site: SlurmSite, people: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs after `retention`, marks with them; what runs, and what is not berth's, stays."""
    ann, _ = people
    monkeypatch.setattr("berth.live.engines.slurm.watch.SWEEP", 0.1)
    site.settings = site.settings.replace(retention=40 * 3600.0)
    long_ago = time.time() - 48 * 3600.0

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("runs", 1, PLACES[:1]), a_job("runs", ann, "sleep 600"))
            await driver.execute(Start("over", 1, PLACES[:1]), a_job("over", ann, "echo ran"))
            await driver.execute(Start("new", 1, PLACES[:1]), a_job("new", ann, "echo ran"))
            for name in ("over", "new"):
                assert isinstance(await driver.ended(name), Finished)
            await driver.until(Started)
            folder = site.settings.outputs / ann
            (folder / "hers.1.out").write_text("not of a job\n")
            for path in folder.iterdir():
                if not path.name.startswith("new."):
                    os.utime(path, (long_ago, long_ago))
            mark = mark_of(folder, (site.settings.spool / "instance").read_text().strip(), "last", 1)
            await eventually_async(lambda: list(folder.glob("over.*")), operator.not_, "old files are not removed")
            mark.touch()  # whatever else was to be removed is gone with this one, in a sweep that began later
            os.utime(mark, (long_ago, long_ago))
            await eventually_async(mark.exists, operator.not_, "an old mark is not removed")
            names = sorted(path.name for path in folder.iterdir())
            kept = [name for name in names if name.startswith(("new.", "runs."))]
            assert len(kept) == 4
            assert names == sorted([*kept, "hers.1.out"])

    asyncio.run(run())


def tokens_of(people: Sequence[str], store: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """A token for each."""
    tokens = {}
    for name in people:
        assert main(["token", "create", name, "--store", str(store)]) == 0
        found = re.search(r"\bberth_\S+", capsys.readouterr().out)
        assert found is not None
        tokens[name] = found[0]
    return tokens


def test_a_service_runs_the_jobs_of_several_users(
    cluster: SharedSlurm,
    people: tuple[str, str],
    public: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With no more of root than deploy/slurm-users.conf leaves it; the user of a job is that of its token."""
    caps = re.search(r"^CapabilityBoundingSet=(.*)$", (DEPLOY / "slurm-users.conf").read_text(), re.MULTILINE)
    assert caps is not None
    left = ",".join(f"+{cap.removeprefix('CAP_').lower()}" for cap in caps[1].split())
    through = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{left}"] if shutil.which("setpriv") else []
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {cluster.conf}\nspool: {tmp_path}/spool\noutput: {public}/output\nusers: true\n")
    tokens = tokens_of(people, tmp_path / "berth.db", capsys)
    with serving_process(tmp_path, "--engine", f"slurm:{settings}", through=through) as live:
        for name, token in tokens.items():
            job = {"name": f"of-{name}", "resources": {"cpu": 1}, "command": ["/bin/sh", "-c", f"{IDENTITY}; exit 3"]}
            live.ask("POST", "/v1/jobs", [job], token)
        for name, token in tokens.items():
            path = f"/v1/jobs/of-{name}"
            found_job = eventually(
                lambda path=path, token=token: live.ask("GET", path, token=token),  # type: ignore[misc]
                lambda seen: seen["phase"] == "failed",
            )
            user = pwd.getpwnam(name)
            lines = (public / "output" / name / f"of-{name}.1.out").read_text().splitlines()
            assert [str(user.pw_uid), str(user.pw_gid)] in [line.split()[:2] for line in lines], lines
            assert found_job["attempt"] == 1
            assert "exit code 3" in found_job["reason"]


def test_nobody_takes_the_name_of_a_job_that_another_submits_to_slurm(
    cluster: SharedSlurm,
    people: tuple[str, str],
    public: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its name is known before berth adopts it: with a job of that name, Bob could have Ann's cancelled."""
    ann, bob = people
    settings = tmp_path / "slurm.yaml"
    settings.write_text(
        f"conf: {cluster.conf}\nspool: {tmp_path}/spool\noutput: {public}/output\nusers: true\n"
        f"companion: {COMPANION}\npoll: 0.3\n"
    )
    tokens = tokens_of(people, tmp_path / "berth.db", capsys)
    witness = public / "witness"
    witness.mkdir()
    witness.chmod(0o777)

    def submit(seconds: int) -> str:
        words = ["-p", COMPANION, "-n1", "-o", "/dev/null", "--parsable", "--chdir=/"]
        done = run_as(ann, "sbatch", *words, "--wrap", f"echo ran >>{witness}/ran; sleep {seconds}", cluster=cluster)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refusal(live: Live, method: str, path: str, body: object = None) -> str:
        with pytest.raises(HTTPError) as error:
            live.ask(method, path, body, tokens[bob])
        with error.value:
            return error.value.read().decode()

    def squeue(number: str) -> str:
        return cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").strip()

    with serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        next_number = int(submit(0)) + 1
        now = int(time.time())
        for second in range(now - 1, now + 20):
            job = {"name": f"slurm-{next_number}-{second}", "resources": {"cpu": 64}, "command": ["true"]}
            assert "berth gives such names to jobs" in refusal(live, "POST", "/v1/jobs", job)
        number = submit(3)
        assert int(number) == next_number

        def adopted() -> list[str]:
            jobs = live.ask("GET", "/v1/jobs", token=tokens[bob])["jobs"]
            return [job["id"] for job in jobs if job["id"].startswith(f"slurm-{number}-")]

        (name,) = eventually(adopted, bool, "the job is not adopted")
        assert now - 1 <= int(name.split("-")[2]) < now + 20
        assert "berth gives such names to jobs" in refusal(live, "POST", "/v1/jobs", {**job, "name": name})
        assert f"job {name} belongs to {ann}" in refusal(live, "DELETE", f"/v1/jobs/{name}")
        assert run_as(bob, "scancel", number, cluster=cluster).returncode != 0
        ended = eventually(
            lambda: live.ask("GET", f"/v1/jobs/{name}", token=tokens[ann]),
            lambda job: job["phase"] in ("finished", "failed", "cancelled"),
        )
        assert (ended["phase"], ended["user"], ended["attempt"], squeue(number)) == ("finished", ann, 1, "COMPLETED")
        if (witness / "ran").read_text() != "ran\nran\n":
            raise InvariantBroken("a job of Ann did not run once")
