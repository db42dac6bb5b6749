"""Read text files of rows in blocks: gzip or plain, checked, with the line number of every row.

polars reads a block at once. If that fails, or the result looks wrong, the lines of the block are read one by one to
report each bad line. So good files are read fast, and bad lines are named exactly. A block bounds the memory,
regardless of the file's size.
"""

from __future__ import annotations

import csv
import dataclasses
import glob
import gzip
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import polars as pl

from berth.errors import InvalidInput

__all__ = [
    "BLOCK",
    "Field",
    "Layout",
    "Report",
    "as_published",
    "beside",
    "converted",
    "first_line",
    "open_text",
    "parts",
    "read_blocks",
    "read_part",
    "read_rows",
    "read_whole",
    "schema",
    "typed_cell",
    "with_required",
]

BLOCK = 1 << 23
"""Bytes of text read at a time."""

EXAMPLES = 5
PARQUET = b"PAR1"


@dataclass(frozen=True)
class Field:
    """A column of a file: name and type (String, Int64, Float64); a row without a required value is bad."""

    name: str
    kind: Any = pl.String
    required: bool = False


def schema(text: str) -> tuple[Field, ...]:
    """Columns in order: `name`, `name:float` or `name:int`, with `!` at the end if a row needs it.

    >>> [(field.name, field.required) for field in schema("job! wait:float")]
    [('job', True), ('wait', False)]
    """
    kinds = {"": pl.String, "float": pl.Float64, "int": pl.Int64}
    parts = [(*word.rstrip("!").partition(":"), word.endswith("!")) for word in text.split()]
    return tuple(Field(name, kinds[kind], required) for name, _, kind, required in parts)


@dataclass(frozen=True)
class Layout:
    """Layout of the rows of a file.

    With `header` the first line names the columns: `fields` are looked up there, and missing columns are null unless
    required. Without it, `fields` are the columns in order, and `more` allows further ones. A separator of one blank
    stands for any number of blanks and tabs.
    """

    fields: tuple[Field, ...]
    separator: str = ","
    header: bool = True
    comment: str | None = None
    more: bool = False
    missing: tuple[str, ...] = ("",)
    """Words for a missing value."""
    quote: str | None = '"'
    """Quote character; None if quotes have no meaning."""


@dataclass
class Report:
    """Counts of a reading: rows, skipped rows and repaired rows, each with its reason."""

    strict: bool = False
    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[InvalidInput]] = field(default_factory=dict)

    def skip(self, reason: str, error: InvalidInput, count: int = 1) -> None:
        """Skip a row; a strict report raises the error instead."""
        if self.strict:
            raise error
        self.skipped[reason] += count
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES:
            kept.append(error)

    def repair(self, reason: str, count: int) -> None:
        """Count repaired rows."""
        if count:
            self.repaired[reason] += count

    def beside(self) -> Report:
        """Report of a table that belongs to the main one: its problems count here, its rows do not."""
        return Report(self.strict, 0, self.skipped, self.repaired, self.examples)


# ---------------------------------------------------------------------------- which files


def beside(path: Path, *names: str) -> Path | None:
    """First of these names in the same folder, plain or gzip; `*` matches anything, the first name wins."""
    for name in names:
        found = sorted(item for end in ("", ".gz") for item in path.parent.glob(name + end) if item != path)
        if found:
            return found[0]
    return None


def parts(path: Path) -> list[Path]:
    """All parts of a table published in many files, in order; a single file is its own part.

    Parts are called `part-00000-of-00500.csv.gz` or `collection_events-000000000000.json.gz`.
    """
    name = re.sub(r"-\d{5}-of-|-\d{12}(?=\.|$)", lambda match: re.sub(r"\d", "?", match[0]), path.name)
    return sorted(path.parent.glob(glob.escape(name).replace("[?]", "?"))) if name != path.name else [path]


def as_published(path: Path, layout: Layout) -> Layout:
    """The layout with a header if the first line holds the name of one of its columns, otherwise without.

    Many traces are published without a header; copies of them often have one.
    """
    cells = {cell.strip().strip('"') for cell in first_line(path).split(layout.separator)}
    return dataclasses.replace(layout, header=any(item.name in cells for item in layout.fields))


# ---------------------------------------------------------------------------- blocks of whole lines


def open_text(path: Path) -> IO[bytes]:
    if not path.exists():
        raise InvalidInput("a file", found="nothing there", file=path)
    if path.is_dir():
        raise InvalidInput("a file", found="a directory", file=path)
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        return gzip.open(path) if zipped else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise InvalidInput("a file that can be read", found=error.strerror or str(error), file=path) from error


def read_part(path: Path, file: IO[bytes], size: int, line: int) -> bytes:
    try:
        part = file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = "a gzip file that ends too early" if isinstance(error, EOFError) else f"a broken gzip ({error})"
        raise InvalidInput("a whole gzip file", found=reason, file=path, line=line) from error
    except OSError as error:
        raise InvalidInput("a file that can be read", found=str(error), file=path, line=line) from error
    if b"\x00" in part:
        at = line + part.count(b"\n", 0, part.index(b"\x00"))
        raise InvalidInput("lines of text", found="binary data", file=path, line=at)
    return part


def read_blocks(path: Path, size: int = BLOCK) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line, from 1."""
    line, rest = 1, b""
    with open_text(path) as file:
        while part := read_part(path, file, size, line):
            rest += part
            end = rest.rfind(b"\n") + 1
            if end:
                yield line, rest[:end]
                line += rest.count(b"\n", 0, end)
                rest = rest[end:]
            elif len(rest) > 64 * size:
                raise InvalidInput("lines of text", found="a line without an end", file=path, line=line)
    if rest:
        yield line, rest + b"\n"
    elif line == 1:
        raise InvalidInput("at least one row", found="an empty file", file=path)


def first_line(path: Path) -> str:
    """First nonblank line, to recognise a format; for a Parquet file its magic, `PAR1`."""
    open_text(path).close()
    with path.open("rb") as file:
        if file.read(4) == PARQUET:
            return PARQUET.decode()
    with open_text(path) as file:
        rest = b""
        while part := read_part(path, file, 1 << 16, 1):
            rest = (rest + part).lstrip(b"\xef\xbb\xbf\r\n\t ")
            if b"\n" in rest or len(rest) > 1 << 16:  # enough of an endless line
                break
    if not rest:
        raise InvalidInput("at least one row", found="an empty file", file=path)
    return rest.partition(b"\n")[0].decode("utf-8", "replace").strip()


# ---------------------------------------------------------------------------- separated columns


def read_rows(path: Path, layout: Layout, report: Report, size: int = BLOCK) -> Iterator[pl.DataFrame]:
    """Tables of rows with a column for each field, and `line`, the row's line in the file."""
    names: list[str] | None = None if layout.header else [item.name for item in layout.fields]
    found, skipped = False, report.skipped.total()
    for start, whole in read_blocks(path, size):
        line, block = start, whole
        if start == 1 and block.startswith(b"\xef\xbb\xbf"):
            block = block[3:]
        if layout.comment is not None:
            block = _without_comments(block, layout.comment.encode())
        if layout.separator == " ":
            block = _single_blanks(block)
        if names is None:
            line, block, names = _header(path, layout, line, block)
            if names is None:
                continue
        whole_block = _fast(layout, names, line, block)
        frame = _slow(path, layout, names, line, block, report) if whole_block is None else whole_block
        frame = frame.filter(~pl.all_horizontal(pl.exclude("line").is_null()))  # blank lines and comments
        if len(frame):
            frame = with_required(path, layout, frame, report)
        found = found or len(frame) > 0 or report.skipped.total() > skipped
        report.rows += len(frame)
        if len(frame):
            yield frame
    if not found:
        raise InvalidInput("at least one row", found="none", file=path)


def converted(
    path: Path, frame: pl.DataFrame, name: str, value: pl.Expr | pl.Series, expected: str, report: Report
) -> pl.DataFrame:
    """Convert a column of text; rows that give null are bad."""
    table = frame.with_columns(value.alias("made"))
    bad = table.filter(pl.col("made").is_null() & pl.col(name).is_not_null())
    for line, text in bad.select("line", name).iter_rows():
        report.skip(f"no {expected}", InvalidInput(f"a {expected}", value=text, key=name, file=path, line=line))
    report.rows -= len(bad)
    good = table.filter(pl.col("made").is_not_null() | pl.col(name).is_null()) if len(bad) else table
    return good.with_columns(pl.col("made").alias(name)).drop("made")


def read_whole(path: Path, layout: Layout, report: Report) -> pl.DataFrame:
    """All rows in one table, for small files such as those of machines."""
    return pl.concat(
        [
            pl.DataFrame(schema={"line": pl.Int64, **{item.name: item.kind for item in layout.fields}}),
            *read_rows(path, layout, report),
        ]
    )


def _without_comments(block: bytes, sign: bytes) -> bytes:
    if not block.startswith(sign) and b"\n" + sign not in block:
        return block
    return b"\n".join(b"" if line.startswith(sign) else line for line in block.split(b"\n"))


def _single_blanks(block: bytes) -> bytes:
    block = block.replace(b"\t", b" ").replace(b"\r", b" ")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ")


def _header(path: Path, layout: Layout, line: int, block: bytes) -> tuple[int, bytes, list[str] | None]:
    """Take the header off the block."""
    while block:
        head, _, block = block.partition(b"\n")
        line += 1
        if not head.strip():
            continue
        names = [
            name.strip().strip("\ufeff")
            for name in next(csv.reader([head.decode("utf-8", "replace").strip("\r")], **_dialect(layout)))
        ]
        lacking = [item.name for item in layout.fields if item.required and item.name not in names]
        if lacking:
            raise InvalidInput(f"a column {lacking[0]}", found=f"columns {', '.join(names)}", file=path, line=line - 1)
        twice = [
            name for name, count in Counter(names).items() if count > 1 and any(f.name == name for f in layout.fields)
        ]
        if twice:
            raise InvalidInput("each column once", value=twice[0], file=path, line=line - 1)
        return line, block, names
    return line, block, None


def _fast(layout: Layout, names: list[str], line: int, block: bytes) -> pl.DataFrame | None:
    """Read the whole block at once; None if any line might be bad."""
    if not block.strip():
        return pl.DataFrame(schema={"line": pl.Int64, **{item.name: item.kind for item in layout.fields}})
    text = block.lstrip(b"\r\n")  # polars takes the number of columns from the first line, blank or not
    line, block = line + block.count(b"\n", 0, len(block) - len(text)), text
    kinds = {item.name: item.kind for item in layout.fields}
    places = [f"{place}" for place in range(len(names))]
    schema = {place: kinds.get(name, pl.String) for place, name in zip(places, names, strict=True)}
    try:
        frame = pl.read_csv(
            block,
            separator=layout.separator,
            quote_char=layout.quote,
            has_header=False,
            schema=schema,
            null_values=list(layout.missing),
            truncate_ragged_lines=layout.more and not layout.header,
        )
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return None
    blank = frame.select(pl.all_horizontal(pl.all().is_null()).sum()).item()
    if blank:  # empty lines; other lines may hold only separators
        blank = sum(not text.strip() for text in block.split(b"\n")) - 1
    separators = block.count(layout.separator.encode())
    exact = separators == (len(frame) - blank) * (len(names) - 1)
    if len(frame) != block.count(b"\n") or not (exact or (layout.more and separators > len(frame) * (len(names) - 1))):
        return None
    if layout.more and not exact and blank < frame[places[-1]].null_count():
        return None
    floats = [place for place, kind in schema.items() if kind == pl.Float64]
    if floats and not frame.select(pl.all_horizontal(pl.col(floats).is_finite().fill_null(True).all())).item():
        return None
    by_name = {name: pl.col(place) for place, name in zip(places, names, strict=True)}
    if layout.separator != " " and _has_loose_blanks(block, layout.separator.encode()):
        for name, value in by_name.items():
            if kinds.get(name) == pl.String:
                bare = value.str.strip_chars()
                by_name[name] = pl.when(~bare.is_in(list(layout.missing))).then(bare)
    columns = [by_name.get(item.name, pl.lit(None, dtype=item.kind)).alias(item.name) for item in layout.fields]
    return frame.select(pl.int_range(line, line + len(frame), dtype=pl.Int64).alias("line"), *columns)


def _has_loose_blanks(block: bytes, separator: bytes) -> bool:
    """Whether any cell might start or end with a blank."""
    if b"\t" in block:
        return True
    near = (separator + b" ", b" " + separator, b"\n ", b" \n", b" \r", b'" ', b' "')
    return b" " in block and (block.startswith(b" ") or any(sign in block for sign in near))


def _slow(path: Path, layout: Layout, names: list[str], line: int, block: bytes, report: Report) -> pl.DataFrame:
    """Read line by line: return the good lines and report the others."""
    rows: list[tuple[Any, ...]] = []
    wanted = [(names.index(item.name) if item.name in names else -1, item) for item in layout.fields]
    # `splitlines` would also split at form feeds and the like
    reader = csv.reader(io.StringIO(block.decode("utf-8", "replace"), newline="\n"), **_dialect(layout))
    while True:
        at = line + reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            report.skip("unreadable line", InvalidInput("a line of columns", found=str(error), file=path, line=at))
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names) and not (layout.more and len(cells) > len(names)):
            wrong = InvalidInput(f"{len(names)} columns", found=f"{len(cells)} columns", file=path, line=at)
            report.skip("wrong number of columns", wrong)
            continue
        try:
            rows.append((at, *(_cell(layout, item, "" if p < 0 else cells[p]) for p, item in wanted)))
        except InvalidInput as error:
            report.skip(f"no {error.expected.removeprefix('a ')}", error.at(file=path, line=at))
    schema = {"line": pl.Int64, **{item.name: item.kind for item in layout.fields}}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _dialect(layout: Layout) -> dict[str, Any]:
    plain = {"delimiter": layout.separator}
    return {**plain, "quoting": csv.QUOTE_NONE} if layout.quote is None else {**plain, "quotechar": layout.quote}


def _cell(layout: Layout, item: Field, text: str) -> Any:
    text = text.strip()
    if text in layout.missing:
        return None
    return typed_cell(item, text)


def typed_cell(item: Field, value: Any) -> Any:
    if item.kind == pl.String:
        return value if isinstance(value, str) else json.dumps(value)
    try:
        if isinstance(value, bool) or (isinstance(value, str) and ("_" in value or not value.isascii())):
            raise ValueError  # numbers only in Python's notation
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        if item.kind == pl.Int64:
            whole = int(value) if isinstance(value, str) else int(Decimal(repr(value)))  # exact digits
            if not -(1 << 63) <= whole < 1 << 63 or float(whole) != number:
                raise ValueError
            return whole
        return number
    except (ValueError, TypeError, OverflowError):
        expected = "a whole number" if item.kind == pl.Int64 else "a finite number"
        raise InvalidInput(expected, value=value, key=item.name) from None


def with_required(path: Path, layout: Layout, frame: pl.DataFrame, report: Report) -> pl.DataFrame:
    for item in layout.fields:
        if not item.required or not frame[item.name].null_count():
            continue
        bad = frame.filter(pl.col(item.name).is_null())
        for line in bad["line"].to_list():
            report.skip(f"no {item.name}", InvalidInput("a value", found="none", key=item.name, file=path, line=line))
        frame = frame.filter(pl.col(item.name).is_not_null())
    return frame
