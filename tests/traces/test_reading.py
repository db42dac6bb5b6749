"""Reading tables: every way in which a file can be bad is one clear error, and both ways of reading agree."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnknownName
from berth.traces import rows as reading
from berth.traces import rows_json as reading_json
from berth.traces.formats import format_names, load_trace, open_trace, recognised
from berth.traces.rows import (
    Field,
    Layout,
    Report,
    as_published,
    beside,
    parts,
    read_rows,
    read_whole,
)
from berth.traces.rows_json import read_json_rows
from tests.harness.examples import examples

LAYOUT = Layout((Field("name", required=True), Field("count", pl.Int64), Field("size", pl.Float64)))
GOOD = "name,count,size\na,1,0.5\nb,2,\n"


def rows(path: Path, layout: Layout = LAYOUT, strict: bool = False) -> tuple[pl.DataFrame, Report]:
    report = Report(strict=strict)
    return read_whole(path, layout, report), report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def test_good_rows_have_their_lines(path: Path) -> None:
    path.write_text(GOOD)
    table, report = rows(path)
    assert table.rows() == [(2, "a", 1, 0.5), (3, "b", 2, None)]
    assert (report.rows, report.skipped.total()) == (2, 0)


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        ("c,3", "wrong number of columns", "table.csv:4: got 2 columns, expected 3 columns"),
        ("c,3,1,4", "wrong number of columns", "table.csv:4: got 4 columns, expected 3 columns"),
        ("c,many,1", "no whole number", "table.csv:4: count: got 'many', expected a whole number"),
        ("c,1.5,1", "no whole number", "table.csv:4: count: got '1.5', expected a whole number"),
        ("c,99999999999999999999,1", "no whole number", "table.csv:4: count: got '99999999999999999999'"),
        ("c,1_000,1", "no whole number", "table.csv:4: count: got '1_000', expected a whole number"),
        ("c,1,many", "no finite number", "table.csv:4: size: got 'many', expected a finite number"),
        ("c,1,NaN", "no finite number", "table.csv:4: size: got 'NaN', expected a finite number"),
        ("c,1,inf", "no finite number", "table.csv:4: size: got 'inf', expected a finite number"),
        ("c,1,1e999", "no finite number", "table.csv:4: size: got '1e999', expected a finite number"),
        (",1,1", "no name", "table.csv:4: name: got none, expected a value"),
    ],
)
def test_a_bad_line_is_left_out_and_told(path: Path, line: str, reason: str, words: str) -> None:
    path.write_text(f"{GOOD}{line}\nd,4,1\n")
    table, report = rows(path)
    assert table["name"].to_list() == ["a", "b", "d"]
    assert table["line"].to_list() == [2, 3, 5]
    assert report.skipped == {reason: 1}
    assert words in str(report.examples[reason][0])
    with pytest.raises(InvalidInput) as told:
        rows(path, strict=True)
    assert words in str(told.value)


def test_whole_numbers_that_a_float_cannot_hold(path: Path) -> None:
    largest, odd = 2**63 - 1, 2**53 + 1
    for more in ("", "bad,x,1\n"):  # read at once, and line by line
        path.write_text(f"name,count,size\na,{largest},1\nb,{odd},1\nc,{-largest - 1},1\n{more}")
        assert rows(path)[0]["count"].to_list() == [largest, odd, -largest - 1]


def test_only_some_examples_are_kept(path: Path) -> None:
    path.write_text(GOOD + "c,x,1\n" * 100)
    _, report = rows(path)
    assert report.skipped.total() == 100
    assert [error.line for error in report.examples["no whole number"]] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got an empty file, expected at least one row"),
        (b"\n\n", "expected at least one row"),
        (b"name,count,size\n", "got none, expected at least one row"),
        (b"name,count,size\na,1\x00,2\n", "table.csv:2: got binary data, expected lines of text"),
        (b"\x7fELF\x00\x01\x02\xff\xfe", "got binary data, expected lines of text"),
        (b"name,count,size,count\na,1,2,3\n", "table.csv:1: got 'count', expected each column once"),
        (b"count,size\n1,2\n", "table.csv:1: got columns count, size, expected a column name"),
        (
            gzip.compress(GOOD.encode() * 1000, mtime=0)[:-9],
            "got a gzip file that ends too early, expected a whole gzip file",
        ),
        (gzip.compress(GOOD.encode(), mtime=0)[:12] + b"rubbish" * 9, "expected a whole gzip file"),
    ],
    ids=["empty", "blank", "names only", "a zero byte", "a program", "twice", "lacking", "cut gzip", "broken gzip"],
)
def test_a_file_that_cannot_be_read_is_one_error(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as told:
        rows(path)
    assert words in str(told.value)
    assert str(path) in str(told.value)


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    for where, words in ((tmp_path, "got a directory, expected a file"), (tmp_path / "no", "got nothing there")):
        with pytest.raises(InvalidInput, match=words):
            rows(where)
        with pytest.raises(InvalidInput, match=words):
            load_trace(where)
        with pytest.raises(InvalidInput, match=words):
            load_trace(where, "swf")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD.replace("\n", "\r\n"),
        GOOD.removesuffix("\n"),
        '"name","count","size"\n"a",1,0.5\n"b",2,\n',
        " name , count,size\na,1,0.5\nb,2,\n",
        "size,name,other,count\n0.5,a,x,1\n,b,,2\n",
    ],
)
def test_harmless_ways_of_writing(path: Path, text: str, zipped: bool) -> None:
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    table, report = rows(path)
    assert table.rows() == [(2, "a", 1, 0.5), (3, "b", 2, None)]
    assert report.skipped.total() == 0


def test_quoted_newlines_separators_and_blank_lines(path: Path) -> None:
    path.write_text('name,count,size\n\n"a\nb",1,2\n\n"c,d",3,4\n"e""f",5,x\n')
    table, report = rows(path)
    assert table.rows() == [(3, "a\nb", 1, 2.0), (6, "c,d", 3, 4.0)]
    assert [error.line for error in report.examples["no finite number"]] == [7]


def test_text_that_is_no_utf8(path: Path) -> None:
    path.write_bytes(b"name,count,size\na\xff,1,2\n")
    table, _ = rows(path)
    assert table["name"].to_list() == ["a\ufffd"]


def test_rows_do_not_depend_on_the_size_of_blocks(path: Path) -> None:
    path.write_text("name,count,size\n" + "".join(f"n{i},{i},{i / 4}\n" for i in range(500)) + "bad,x,1\n")
    whole, _ = rows(path)
    for size in (1, 10, 97, 5000):
        report = Report()
        table = pl.concat(list(read_rows(path, LAYOUT, report, size)))
        assert table.equals(whole)
        assert report.examples["no whole number"][0].line == 502


CELLS = st.text(st.sampled_from('ab15.-e"\n,x '), max_size=5)
NUMBERS = st.integers(-99, 99).map(str) | st.floats(-9, 9).map(str) | st.sampled_from(["", "NaN", "-0", "+1", "1e3"])


@examples(300)
@example([[" a", "1", "2"], ["b ", "1", "2"]], "\n")
@example([["", "", ""], ["1"]], "\n")
@example([['""', "1", "2"], ['"', "1", "2"]], "\n")
@given(
    st.lists(
        st.tuples(CELLS, NUMBERS | CELLS, NUMBERS | CELLS).map(list) | st.lists(CELLS, max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_fast_and_slow_give_the_same(folder: Path, lines: list[list[str]], end: str) -> None:
    path = folder / "table.csv"
    path.write_bytes(("name,count,size" + end + "".join(",".join(line) + end for line in lines)).encode())

    def read() -> object:
        try:
            table, report = rows(path)
        except InvalidInput as error:
            return str(error)
        told = [str(error) for errors in report.examples.values() for error in errors]
        return table.rows(), dict(report.skipped), told

    usual = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_fast", lambda *_: None)
        assert read() == usual


BLANKS = Layout(tuple(Field(name, pl.Float64) for name in "abc"), separator=" ", header=False, comment=";", more=True)
WORDS = st.sampled_from(["1", "-1", "2.5", "x", "nan", ";", "  7", "3\t4"])


@examples(200)
@given(st.lists(st.lists(WORDS, max_size=5).map(" ".join), min_size=1, max_size=6))
def test_fast_and_slow_give_the_same_with_blanks_between(folder: Path, lines: list[str]) -> None:
    path = folder / "table.swf"
    path.write_text("\n".join(lines))

    def read() -> object:
        try:
            table, report = rows(path, BLANKS)
        except InvalidInput as error:
            return str(error)
        return table.rows(), dict(report.skipped)

    usual = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_fast", lambda *_: None)
        assert read() == usual


ROWS = st.tuples(st.text(st.sampled_from("abc 5"), min_size=1), st.integers(0, 2**62), st.floats(-1e9, 1e9))


@given(st.lists(ROWS, min_size=1))
def test_good_tables_are_read_fast(folder: Path, lines: list[tuple[str, int, float]]) -> None:
    path = folder / "table.csv"
    kept = [(f"x{name}".strip(), count, size) for name, count, size in lines]
    path.write_text("name,count,size\n" + "".join(f"{name},{count},{size!r}\n" for name, count, size in kept))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_slow", lambda *_: pytest.fail("read line by line"))
        assert rows(path)[0].drop("line").rows() == kept


# ---------------------------------------------------------------------------- JSON lines, names, parts, formats


def test_json_lines(path: Path) -> None:
    path.write_text('{"a": {"b": "7"}, "c": 1.5}\n\n{"a.b": 8, "c": null}\nrubbish\n[1]\n{"a": {"b": "x"}}\n{"c": 1}\n')
    report = Report()
    fields = (Field("a.b", pl.Int64, required=True), Field("c", pl.Float64))
    table = pl.concat(list(read_json_rows(path, fields, report)))
    assert table.rows() == [(1, 7, 1.5), (3, 8, None)]
    assert report.skipped == {"no JSON object": 2, "no whole number": 1, "no a.b": 1}
    assert "table.csv:6: a.b: got 'x'" in str(report.examples["no whole number"][0])
    with pytest.raises(InvalidInput, match=r"table.csv:4: got rubbish"):
        list(read_json_rows(path, fields, Report(strict=True)))


JSON_FIELDS = (Field("a.b", pl.Int64), Field("a.c", pl.Float64), Field("d", required=True))
LEAVES = st.none() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15)
LEAVES |= st.sampled_from(["", "7", "-3", "0.25", "x y", "1_0", "nan"])
INNER = st.fixed_dictionaries({}, optional={"b": LEAVES, "c": LEAVES})
OBJECTS = st.fixed_dictionaries({}, optional={"a": INNER, "d": st.text(max_size=4), "e": LEAVES})


@examples(300)
@example([{"a": {"b": True, "c": False}, "d": "x"}])
@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_fast_and_slow_give_the_same_from_json(folder: Path, trees: list[dict[str, object]]) -> None:
    path = folder / "lines.json"
    path.write_text("".join(f"{json.dumps(tree)}\n" for tree in trees))

    def read() -> object:
        report = Report()
        return [table.rows() for table in read_json_rows(path, JSON_FIELDS, report)], dict(report.skipped)

    usual = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_json, "_fast_json", lambda *_: None)
        assert read() == usual


def test_good_json_is_read_fast(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text('{"a": {"b": "9007199254740993", "c": 0.25}, "d": "x"}\n{"d": "y", "f": [1, {}]}\n')
    monkeypatch.setattr(reading_json, "_slow_json", lambda *_: pytest.fail("read line by line"))
    (table,) = read_json_rows(path, JSON_FIELDS, Report())
    assert table.rows() == [(1, 9007199254740993, 0.25, "x"), (2, None, None, "y")]


def test_with_or_without_names(path: Path) -> None:
    path.write_text("a,1,2\n")
    assert not as_published(path, LAYOUT).header
    assert rows(path, as_published(path, LAYOUT))[0].rows() == [(1, "a", 1, 2.0)]
    path.write_text(GOOD)
    assert as_published(path, LAYOUT).header


def test_files_beside_and_parts(tmp_path: Path) -> None:
    numbered = [f"part-0000{part}-of-0000{of}.csv.gz" for part, of in ((0, 2), (1, 2), (0, 3))]
    for name in ("a.csv", "b.csv.gz", *numbered):
        (tmp_path / name).write_text("x")
    main = tmp_path / "a.csv"
    assert beside(main, "b.csv") == tmp_path / "b.csv.gz"
    assert beside(main, "c.csv", "b*.csv") == tmp_path / "b.csv.gz"
    assert beside(main, "a.csv") is None
    assert parts(main) == [main]
    assert [part.name for part in parts(tmp_path / "part-00001-of-00002.csv.gz")] == [
        "part-00000-of-00002.csv.gz",
        "part-00001-of-00002.csv.gz",
    ]


def test_what_is_wrong_beside_counts_but_not_its_rows() -> None:
    report = Report()
    other = report.beside()
    other.rows += 5
    other.skip("bad", InvalidInput("good"))
    other.repair("mended", 2)
    assert (report.rows, report.skipped, report.repaired) == (0, {"bad": 1}, {"mended": 2})


def test_a_format_that_nobody_knows(path: Path) -> None:
    path.write_text("one,two\n1,2\n")
    with pytest.raises(InvalidInput, match="got a first line 'one,two', expected a trace in one of") as told:
        recognised(path)
    assert all(name in told.value.expected for name in format_names())


def test_options_and_machines_that_a_format_does_not_have(path: Path) -> None:
    path.write_text("arrival_time,length,cpus\n0,1,1\n")
    with pytest.raises(UnknownName, match="unknown option of gaia 'units'; did you mean 'unit'"):
        load_trace(path, units="hours")
    with pytest.raises(InvalidInput, match=r"machines: got .*, expected no table of machines, as gaia has none"):
        load_trace(path, machines=path)
    with pytest.raises(UnknownName, match="unknown trace format 'gai'; did you mean 'gaia'"):
        load_trace(path, "gai")


def test_dates_out_of_order_and_ends_before_starts_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|State|Submit|Start|End\n"
        "2|COMPLETED|2024-01-03T00:00:00|2024-01-03T00:00:10|2024-01-03T00:00:05\n"
        "1|COMPLETED|2024-01-01T12:00:00|2024-01-01T11:00:00|2024-01-01T13:00:00\n"
    )
    reading_ = open_trace(path, strict=True)
    assert reading_.trace().jobs.select("job", "submit_s", "wait_s", "run_s").rows() == [
        ("2", 172800.0, 10.0, -5.0),
        ("1", 43200.0, -3600.0, 7200.0),
    ]
