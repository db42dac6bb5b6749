"""Read JSON in blocks, as `berth.traces.rows` reads tables: one object per line, or one array of objects.

polars reads a block at once; if that fails or looks wrong, it is read object by object.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput
from berth.traces.rows import (
    BLOCK,
    Field,
    Layout,
    Report,
    open_text,
    read_blocks,
    read_part,
    typed_cell,
    with_required,
)

__all__ = ["read_json_array", "read_json_rows"]

_WHITE = re.compile(r"\s*")


def read_json_rows(path: Path, fields: Sequence[Field], report: Report, size: int = BLOCK) -> Iterator[pl.DataFrame]:
    """Like `read_rows`, for one JSON object per line; `a.b` names field b of object a. Numbers may be texts."""
    layout = Layout(tuple(fields))
    found = False
    for line, block in read_blocks(path, size):
        found = found or bool(block.strip())
        fast = _fast_json(fields, line, block)
        frame = _slow_json(path, fields, line, block, report) if fast is None else fast
        frame = with_required(path, layout, frame, report)
        report.rows += len(frame)
        if len(frame):
            yield frame
    if not found:
        raise InvalidInput("at least one row", found="none", file=path)


def _fast_json(fields: Sequence[Field], line: int, block: bytes) -> pl.DataFrame | None:
    """Read the whole block at once; None if any line might be bad or is unusual."""
    tree: dict[str, Any] = {}
    for item in fields:
        *outer, leaf = item.name.split(".")
        branch = tree
        for key in outer:
            branch = branch.setdefault(key, {})
        branch[leaf] = pl.String
        if outer and f'"{item.name}"'.encode() in block:
            return None
    try:
        frame = pl.read_ndjson(io.BytesIO(block), schema=_schema(tree))
        texts = {item.name: _leaf(item.name) for item in fields}
        columns = [pl.when(texts[item.name] != "").then(texts[item.name]).cast(item.kind) for item in fields]
        frame = frame.select(value.alias(item.name) for item, value in zip(fields, columns, strict=True))
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return None
    if len(frame) != block.count(b"\n"):
        return None
    floats = [item.name for item in fields if item.kind == pl.Float64]
    if floats and not frame.select(pl.all_horizontal(pl.col(floats).is_finite().fill_null(True).all())).item():
        return None
    return frame.select(pl.int_range(line, line + len(frame), dtype=pl.Int64).alias("line"), pl.all())


def _schema(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: pl.Struct(_schema(value)) if isinstance(value, dict) else value for key, value in tree.items()}


def _leaf(name: str) -> pl.Expr:
    first, *rest = name.split(".")
    value = pl.col(first)
    for key in rest:
        value = value.struct.field(key)
    return value


def _slow_json(path: Path, fields: Sequence[Field], start: int, block: bytes, report: Report) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for line, text in enumerate(block.split(b"\n"), start):
        if not text.strip():
            continue
        try:
            tree = json.loads(text)
            if not isinstance(tree, dict):
                raise ValueError("no object")
        except ValueError as error:
            shown = f"{text[:40].decode('utf-8', 'replace')} ({error})"
            report.skip("no JSON object", InvalidInput("a JSON object", found=shown, file=path, line=line))
            continue
        try:
            rows.append((line, *(_json_cell(item, tree) for item in fields)))
        except InvalidInput as error:
            report.skip(f"no {error.expected.removeprefix('a ')}", error.at(file=path, line=line))
    schema = {"line": pl.Int64, **{item.name: item.kind for item in fields}}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _json_cell(item: Field, tree: dict[str, Any]) -> Any:
    value: Any = tree.get(item.name)
    if value is None:
        value = tree
        for key in item.name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
    return None if value is None or value == "" else typed_cell(item, value)


def read_json_array(path: Path, report: Report, size: int = BLOCK) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Objects of one big JSON array, in lists of those that end in a block, each with the line where it begins.

    A syntax error is an error, strict or not: the start of the next object is unknown.
    """
    decoder, text, line, last, closed = json.JSONDecoder(), "", 1, False, False
    incremental = codecs.getincrementaldecoder("utf-8-sig")("replace")
    opened = False
    with open_text(path) as file:
        while not last:
            part = read_part(path, file, size, line)
            last = not part
            text, objects, at = text + incremental.decode(part, final=last), [], 0
            while True:
                white = _WHITE.match(text, at)
                start = white.end() if white else at
                line, at = line + text.count("\n", at, start), start
                if at == len(text):
                    break
                if not opened and text[at] == "[":
                    opened, at = True, at + 1
                    continue
                if opened and not closed and text[at] in ",]":
                    closed, at = text[at] == "]", at + 1
                    continue
                if closed or not opened:
                    raise InvalidInput("one JSON array", found=repr(text[at : at + 20]), file=path, line=line)
                try:
                    tree, end = decoder.raw_decode(text, at)
                except json.JSONDecodeError as error:
                    if not last:
                        break  # the rest is in the next block
                    where = line + text.count("\n", at, error.pos)
                    raise InvalidInput("a whole JSON array", found=error.msg, file=path, line=where) from error
                if isinstance(tree, dict):
                    objects.append((line, tree))
                else:
                    shown = json.dumps(tree)[:40]
                    report.skip("no JSON object", InvalidInput("a JSON object", found=shown, file=path, line=line))
                line, at = line + text.count("\n", at, end), end
            text = text[at:]
            report.rows += len(objects)
            if objects:
                yield objects
    if not closed:
        raise InvalidInput("a whole JSON array", found="the end of the file", file=path, line=line)
