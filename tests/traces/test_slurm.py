"""Slurm accounting, on a hand-made sample, and the words that Slurm uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.traces.formats import load_trace, open_trace
from berth.traces.formats.slurm import _duration, _tres, expand_hosts, parse_duration, parse_tres

Sample = Callable[[str], Path]


def test_jobs(sample: Sample) -> None:
    reading = open_trace(sample("slurm/sacct.txt"))
    trace = reading.trace()
    assert trace.source.format == "slurm"
    assert trace.source.notes["zero"].startswith("2024-03-01 00:00:00")
    assert trace.jobs.select("job", "submit_s", "wait_s", "run_s", "estimate_s", "status").rows() == [
        ("100", 82800.0, 7200.0, 93845.0, 172800.0, "done"),
        ("101_4", 86400.0, None, None, None, "cancelled"),
        ("102", 129600.0, 1.0, None, None, "running"),
        ("103", 133200.0, 30.0, 30.0, 600.0, "failed"),
    ]
    assert trace.jobs.select("pieces", "user", "group", "kind", "needs", "cpu", "memory", "gpu").rows() == [
        (2, "ann", "physics", "gpu", "a100", 4.0, 8.0, 1.0),
        (1, '"bob"', "bio", "cpu", None, 4.0, 7.8125, None),  # 4 × 2000 MiB; a quote is a sign like any other
        (1, "bob", "bio", "cpu", None, 2.0, 4.0, 0.0),
        (1, "bob", "bio", "gpu", None, 1.0, 1.0, 1.0),
    ]
    assert reading.report.repaired == {"job step, left out": 2}


def test_machines(sample: Sample) -> None:
    for name in ("sacct.txt", "sinfo.txt"):
        machines = load_trace(sample(f"slurm/{name}")).machines
        assert machines.select("machine", "label", "cpu", "memory", "gpu").rows() == [
            ("n1", "a100", 64.0, 512.0, 4.0),
            ("n2", "a100", 64.0, 512.0, 4.0),
            ("n3", "a100", 64.0, 512.0, 4.0),
            ("n07", None, 128.0, 256.0, 0.0),
            ("n08", None, 128.0, 256.0, 0.0),
            ("login", None, 128.0, 256.0, 0.0),
        ]


def test_few_columns(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|Submit|Start|End|NNodes|NCPUS\n7|2024-01-01T00:00:01|2024-01-01T00:00:03|2024-01-01T00:01:03|2|8\n"
    )
    trace = load_trace(path)
    assert trace.jobs.select("submit_s", "wait_s", "run_s", "pieces", "cpu", "memory", "gpu").rows() == [
        (1.0, 2.0, 60.0, 2, 4.0, None, None)
    ]


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [("Submit", "yesterday", "date like"), ("Elapsed", "1:2:3:4", "duration like"), ("NNodes", "two", "finite number")],
)
def test_bad_cells(tmp_path: Path, column: str, text: str, words: str) -> None:
    good = {"JobID": "1", "Submit": "2024-01-01T00:00:00", "Elapsed": "00:00:01", "NNodes": "1"}
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join("|".join(row) for row in (good, good.values(), {**good, column: text}.values())) + "\n")
    reading = open_trace(path)
    assert len(reading.trace()) == 1
    assert (reading.report.rows, reading.report.skipped.total()) == (1, 1)
    with pytest.raises(InvalidInput, match=words) as told:
        open_trace(path, strict=True).trace()
    assert (told.value.line, told.value.key, told.value.value) == (3, column, text)


def test_a_name_with_a_bar_in_it(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|User|Submit\n1|a|2024-01-01T00:00:00\n2|a|b|2024-01-01T00:00:00\n")
    reading = open_trace(path)
    assert len(reading.trace()) == 1
    assert reading.report.skipped == {"wrong number of columns": 1}


# ---------------------------------------------------------------------------- words of Slurm


def one(text: str, value: pl.Expr) -> object:
    return pl.DataFrame({"text": [text]}).select(value).item()


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_come_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    forms: dict[str, float] = {f"{days}-{clock}": total}
    forms[f"{days}-{hours}:{minutes}"] = total - seconds
    forms[f"{days}-{hours}"] = total - seconds - 60 * minutes
    forms[clock] = total - 86400 * days
    forms[f"{minutes:02d}:{seconds:02d}.500"] = 60 * minutes + seconds + 0.5
    forms[f"{minutes}"] = 60 * minutes
    for text, expected in forms.items():
        assert parse_duration(text) == expected == _duration(pl.Series([text]))[0]


@given(st.text(st.sampled_from("0123456789:-. x"), max_size=12))
def test_both_readers_of_durations_agree(text: str) -> None:
    try:
        expected = parse_duration(text)
    except InvalidInput:
        expected = None
    assert _duration(pl.Series([text]))[0] == expected


NAMES = st.sampled_from(["billing", "cpu", "node", "energy", "gres/gpu", "gres/gpu:a100", "gres/gpu:v100", "gres/gpux"])


@given(
    st.dictionaries(NAMES, st.integers(0, 10**6)),
    st.none() | st.tuples(st.integers(0, 10**6), st.sampled_from("KMGT")),
    st.randoms(use_true_random=False),
)
def test_tres_come_back(amounts: dict[str, int], memory: tuple[int, str] | None, random: Random) -> None:
    items = [f"{name}={number}" for name, number in amounts.items()]
    expected = {name: float(number) for name, number in amounts.items()}
    if memory is not None:
        items.append(f"mem={memory[0]}{memory[1]}")
        expected["mem"] = memory[0] * 1024.0 ** ("KMGT".index(memory[1]) - 2)
    random.shuffle(items)
    text = ",".join(items)
    assert parse_tres(text) == pytest.approx(expected)
    columns = {name: one(text, value) for name, value in _tres(pl.col("text")).items()}
    assert columns["cpu"] == expected.get("cpu")
    assert columns["node"] == expected.get("node")
    assert columns["memory"] == (pytest.approx(expected["mem"]) if "mem" in expected else None)
    typed = [name for name in expected if name.startswith("gres/gpu:")]
    assert columns["gpu"] == expected.get("gres/gpu", sum(expected[name] for name in typed))
    assert columns["type"] == (typed[0].partition(":")[2] if len(typed) == 1 else None)


def test_tres_with_units_and_without_sense() -> None:
    assert parse_tres("gres/gpumem=2G,mem=512") == {"gres/gpumem": 2.0 * 1024**3, "mem": 0.5}
    assert parse_tres("fs/disk=1.5K,bb/x=7") == {"fs/disk": 1536.0, "bb/x": 7.0}
    assert parse_tres("") == {}
    for text in ("cpu", "cpu=", "=3", "cpu=3X", "cpu=-1"):
        with pytest.raises(InvalidInput, match="name=amount"):
            parse_tres(text)


@given(st.dictionaries(st.sampled_from(["n", "gpu-", "r1c"]), st.sets(st.integers(0, 120), min_size=1), min_size=1))
def test_host_lists_come_back(hosts: dict[str, set[int]]) -> None:
    for width in (1, 3):
        names = [f"{prefix}{number:0{width}d}" for prefix, numbers in hosts.items() for number in sorted(numbers)]
        assert expand_hosts(",".join(folded(prefix, numbers, width) for prefix, numbers in hosts.items())) == names


def folded(prefix: str, numbers: set[int], width: int) -> str:
    """Slurm's short form: runs of numbers as ranges."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]:0{width}d}" + (f"-{run[-1]:0{width}d}" if len(run) > 1 else "") for run in runs]
    return f"{prefix}[{','.join(parts)}]"


def test_host_lists_without_sense() -> None:
    assert expand_hosts("None assigned") == []
    for text in ("n[1-4", "n1-4]", "n[4-1]", "n[a-b]", "n[]", "n[1,]"):
        with pytest.raises(InvalidInput, match="host list"):
            expand_hosts(text)
