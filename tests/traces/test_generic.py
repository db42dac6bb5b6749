"""The generic format: what is written is what is read, and whatever is wrong is named."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from berth.errors import InvalidInput
from berth.model import Resource
from berth.traces.formats import Reading, generic, load_trace, open_trace
from berth.traces.formats.generic import SUFFIXES, write_trace
from berth.traces.rows import Report
from berth.traces.trace import CORES, MEMORY, OUTAGE_COLUMNS, Source, Trace

# Text as the format keeps it: not empty, no blanks around it, no control signs.
words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).map(str.strip).filter(bool)
numbers = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(0.0, 1e6)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    names = draw(st.lists(st.sampled_from(["cpu", "memory", "gpu", "licences of x"]), unique=True))
    resources = tuple(Resource(name, draw(st.sampled_from(["core", "GiB", "", "per cent"]))) for name in names)
    size = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[Any], least: int = size) -> list[Any]:
        return draw(st.lists(st.none() | values, min_size=least, max_size=least))

    jobs = {
        "job": draw(st.lists(words, min_size=size, max_size=size)),
        **{name: column(numbers) for name in ("submit_s", "wait_s", "run_s", "estimate_s")},
        "pieces": column(st.integers(-5, 2**40)),
        **{name: column(words) for name in ("user", "group", "kind", "needs", "status")},
        **{name: column(numbers) for name in names},
    }
    many = draw(st.integers(0, 3))
    machines: dict[str, list[Any]] = {
        "machine": draw(st.lists(words, min_size=many, max_size=many)),
        "count": draw(st.lists(st.integers(1, 1000), min_size=many, max_size=many)),
        "speed": draw(st.lists(st.floats(0.01, 100), min_size=many, max_size=many)),
        "label": column(words, many),
        "group": column(words, many),
        **{name: column(amounts, many) for name in names},
    }
    away = draw(st.lists(st.tuples(words, numbers, st.none() | numbers), max_size=2))
    outages = pl.DataFrame(away, schema=dict(OUTAGE_COLUMNS), orient="row")
    typed = pl.DataFrame(jobs, schema_overrides={n: pl.Float64 for n in jobs if n.endswith("_s") or n in names})
    return Trace.of(typed, machines if many else None, resources, outages=outages)


@given(traces(), st.sampled_from(SUFFIXES), st.booleans())
def test_what_is_written_is_what_is_read(trace: Trace, suffix: str, split: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"own{suffix}"
        chunks: Iterator[pl.DataFrame] = iter([trace.jobs[:1], trace.jobs[1:]] if split else [trace.jobs])
        part = Reading(chunks, trace.resources, trace.source, Report(), trace.machines, trace.outages)
        written = write_trace(part if split else trace, path)
        assert sorted(Path(place).iterdir()) == sorted(written)
        read = load_trace(path, strict=True)
    assert read.resources == trace.resources
    assert_frame_equal(read.jobs, trace.jobs)
    assert_frame_equal(read.machines, trace.machines)
    assert_frame_equal(read.outages, trace.outages)


SMALL = "submit_s,run_s\n0,60\n5.5,10\n"


def test_two_columns_are_enough(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(SMALL)
    trace = load_trace(tmp_path / "own.csv")
    assert trace.source.format == "generic"
    assert trace.jobs.select("submit_s", "run_s", "pieces", "job").rows() == [
        (0.0, 60.0, 1, None),
        (5.5, 10.0, 1, None),
    ]
    assert trace.resources == ()
    assert len(trace.machines) == 0


def test_an_empty_cell_in_a_column_of_pieces_stays_unknown(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("submit_s,run_s,pieces\n0,60,\n5.5,10,4.0\n")
    assert load_trace(tmp_path / "own.csv").jobs["pieces"].to_list() == [None, 4]


def test_signs_that_end_lines_elsewhere_end_none_here(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text('job,submit_s,run_s\n"a\u2028b,c",0,60\nd,soon,1\n', encoding="utf-8")
    reading = open_trace(tmp_path / "own.csv")
    assert reading.trace().jobs["job"].to_list() == ["a\u2028b,c"]
    assert str(reading.report.examples["no finite number"][0]).endswith(
        "own.csv:3: submit_s: got 'soon', expected a finite number"
    )


def test_machines_beside_it_and_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("submit_s,run_s,cpu[core]\n0,60,2\n")
    with gzip.open(tmp_path / "own.machines.csv.gz", "wt") as file:
        file.write("machine,cpu[core],gpu[device]\nm1,8,\nm2,16,4\n")
    (tmp_path / "others.csv").write_text("machine,cpu[core],count\nm3,1,7\n")
    beside = load_trace(tmp_path / "own.csv")
    assert beside.resources == (CORES, Resource("gpu", "device"))
    assert beside.machines.select("machine", "count", "speed", "cpu", "gpu").rows() == [
        ("m1", 1, 1.0, 8.0, None),
        ("m2", 1, 1.0, 16.0, 4.0),
    ]
    assert len(beside.source.files) == 2
    named = load_trace(tmp_path / "own.csv", machines=tmp_path / "others.csv")
    assert named.machines.select("machine", "count").rows() == [("m3", 7)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submit_s,run_s,usr\n0,1,a\n", "own.csv:1: column: got 'usr', expected one of job,"),
        ("submit_s,run_s,usr\n0,1,a\n", "did you mean 'user'?"),
        ("submit_s,run_s,cpu\n0,1,2\n", "did you mean 'cpu[core]'?"),
        ("submit_s,run_s,Memory\n0,1,2\n", "did you mean 'memory[GiB]'?"),
        ("submit_s,runs\n0,1\n", "did you mean 'run_s'?"),
        ("submit_s;run_s\n0;1\n", "separator: got ';', expected commas between columns"),
        ("submit_s,job\n0,1\n", "expected a column run_s"),
        ("submit_s,run_s,user[GiB]\n0,1,2\n", "each name once"),
        ("submit_s,run_s,cpu[a],cpu[b]\n0,1,2,3\n", "each name once"),
        ("submit_s,run_s,line[m]\n0,1,2\n", "each name once"),
        ("submit_s,run_s,_room[m]\n0,1,2\n", "got '_room[m]'"),
        ("submit_s,run_s,[m]\n0,1,2\n", "got '[m]'"),
        ("submit_s,run_s,run_s\n0,1,2\n", "each column once"),
        ("submit_s,run_s\n", "at least one row"),
        ("", "an empty file"),
        ("submit_s,run_s\n0,soon\n", "own.csv:2: run_s: got 'soon', expected a finite number"),
        ("submit_s,run_s\n0,nan\n", "own.csv:2: run_s: got 'nan', expected a finite number"),
        ("submit_s,run_s\n0,1\n\n0,1,2\n", "own.csv:4: got 3 columns, expected 2 columns"),
        ("submit_s,run_s,pieces\n0,1,1\n0,1,1.5\n", "own.csv:3: pieces: got 1.5, expected a whole number"),
    ],
)
def test_bad_files_have_one_clear_error(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as error:
        load_trace(path, "generic", strict=True)
    assert said in str(error.value)


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("submit_s,run_s,pieces\n0,1,1\n0,soon,1\n0,1,1.5\n0,1\n9,1,2\n,,\n")
    reading = open_trace(path)
    assert reading.trace().jobs["submit_s"].to_list() == [0.0, 9.0]
    assert reading.report.rows == 2
    assert reading.report.skipped == {"no finite number": 1, "wrong number of columns": 1, "no whole number": 1}


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ("machine,cpu[milli]\nm,1\n", "got 'cpu[milli]', expected cpu[core], as for the jobs"),
        ("machine,cpus\nm,1\n", "did you mean 'cpu[core]'?"),
        ("count,cpu[core]\n1,1\n", "a column machine"),
        ("machine,cpu[core]\nm,1\n,1\n", "own.machines.csv:3: machine: got none"),
        ("machine,cpu[core]\nm,-1\n", "cpu of m: got -1.0, expected a number ≥ 0"),
        ("machine,cpu[core],count\nm,1,0\n", "count of m: got 0"),
        ("machine,cpu[core],speed\nm,1,0\n", "speed of m: got 0.0, expected a number above 0"),
        ("machine,cpu[core]\nm,many\n", "own.machines.csv:2: cpu[core]: got 'many'"),
    ],
)
def test_bad_machines_have_one_clear_error(machines: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("submit_s,run_s,cpu[core]\n0,60,2\n")
    (tmp_path / "own.machines.csv").write_text(machines)
    with pytest.raises(InvalidInput) as error:
        open_trace(tmp_path / "own.csv")
    assert said in str(error.value)


def test_parquet_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "ROWS", 2)
    path = tmp_path / "own.parquet"
    table = {
        "job": [7, 8, 9, 10, 11],
        "submit_s": [0, 1, 2, 3, 4],
        "run_s": [1.0, float("inf"), 3.0, None, 5.0],
        "pieces": [1.0, 2.0, 2.5, None, 4.0],
        "user": [" a", "", "b", None, "c "],
    }
    pl.DataFrame(table).write_parquet(path)
    reading = open_trace(path)
    chunks = list(reading.jobs)
    assert [len(chunk) for chunk in chunks] == [1, 1, 1]
    jobs = pl.concat(chunks)
    assert jobs.select("line", "job", "submit_s", "run_s", "pieces", "user").rows() == [
        (1, "7", 0.0, 1.0, 1, "a"),
        (4, "10", 3.0, None, None, None),
        (5, "11", 4.0, 5.0, 4, "c"),
    ]
    assert reading.report.rows == 3
    assert reading.report.skipped == {"no finite number": 1, "no whole number": 1}
    with pytest.raises(InvalidInput, match=r"own.parquet:2: run_s: got inf"):
        load_trace(path, strict=True)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"submit_s": ["0"], "run_s": [1.0]}, "submit_s: got String, expected a column of numbers"),
        ({"submit_s": [0.0], "run_s": [1.0], "user": [[1]]}, "expected a column of text"),
        ({"submit_s": [0.0], "run": [1.0]}, "did you mean 'run_s'?"),
        ({"submit_s": [], "run_s": []}, "at least one row"),
    ],
)
def test_bad_parquet_has_one_clear_error(table: dict[str, Any], said: str, tmp_path: Path) -> None:
    pl.DataFrame(table).write_parquet(tmp_path / "own.parquet")
    with pytest.raises(InvalidInput) as error:
        load_trace(tmp_path / "own.parquet", "generic")
    assert said in str(error.value)


def test_half_a_parquet_file_has_one_clear_error(tmp_path: Path) -> None:
    pl.DataFrame({"submit_s": [0.0], "run_s": [1.0]}).write_parquet(tmp_path / "own.parquet")
    whole = (tmp_path / "own.parquet").read_bytes()
    (tmp_path / "own.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match="a Parquet file that can be read"):
        load_trace(tmp_path / "own.parquet")


def stopping(error: BaseException) -> Reading:
    """A reading that gives one table and then fails."""

    def jobs() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"job": ["a"], "submit_s": [0.0], "run_s": [1.0]})
        raise error

    return Reading(jobs(), (CORES,), Source("test"), Report(), pl.DataFrame({"machine": ["m"], "cpu": [1.0]}))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), InvalidInput("a row")])
def test_nothing_half_written_is_left(suffix: str, error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / f"own{suffix}"
    with pytest.raises(type(error)):
        write_trace(stopping(error), path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("precious")
    with pytest.raises(type(error)):
        write_trace(stopping(error), path, overwrite=True)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("there", ["own.csv", "own.machines.csv", "own.outages.csv"])
def test_what_is_there_is_kept_unless_told(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("precious")
    trace = Trace.of({"submit_s": [0.0], "run_s": [1.0]}, None, ())
    with pytest.raises(InvalidInput, match=f"{there}: got a file that is there, expected a new name, or --force"):
        write_trace(trace, tmp_path / "own.csv")
    assert write_trace(trace, tmp_path / "own.csv", overwrite=True) == [tmp_path / "own.csv"]
    assert [file.name for file in tmp_path.iterdir()] == ["own.csv"]


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    trace = Trace.of({"submit_s": [0.0], "run_s": [1.0]}, None, ())
    with pytest.raises(InvalidInput, match=r"a name that ends in one of .csv, .csv.gz, .parquet"):
        write_trace(trace, tmp_path / "own.xlsx")
    with pytest.raises(InvalidInput, match="a directory to write to"):
        write_trace(trace, tmp_path / "none" / "own.csv")
    with pytest.raises(InvalidInput, match="without brackets"):
        write_trace(Trace.of({"run_s": [1.0]}, None, (Resource("a[b]"),)), tmp_path / "own.csv")
    broken = Trace.of({"job": ["a\nb"], "run_s": [1.0]}, None, (MEMORY,))
    with pytest.raises(InvalidInput, match="text without line breaks"):
        write_trace(broken, tmp_path / "own.csv")
    assert list(tmp_path.iterdir()) == []
