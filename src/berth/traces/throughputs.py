"""Tables of measured training speeds by type of job, GPU model and placement on one server or several.

berth ships Gavel's table (Narayanan et al., OSDI 2020; MIT licence). Sia's (Jayaram Subramanya et al., SOSP 2023) has
no licence: berth reads the user's copy.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.about import HOME
from berth.errors import InvalidInput

__all__ = ["Throughputs", "read_gavel", "read_sia", "read_table"]

GAVEL = HOME / "data" / "throughputs" / "gavel.csv"
GAVEL_COLUMNS = ("model", "batch_size", "gpus", "gpu_model", "consolidated", "steps_per_second")
SIA_COLUMNS = ("application", "gpu", "table", "placement", "local_batch_size", "step_seconds")


@dataclass(frozen=True)
class Throughputs:
    """Speeds of job types, relative to the `reference` GPU on as few servers as possible, which is 1.

    A type is a path: model, batch size if any, number of GPUs. `speed` is by type, GPU and whether the job is spread
    over several servers; a job that cannot run has no entry. `gpus` is the number of GPUs of each type.

    >>> table = read_gavel()
    >>> len(table.gpus), table.speed["LM/b10/g4", "v100", True].__round__(2)
    (83, 0.31)
    """

    reference: str
    speed: Mapping[tuple[str, str, bool], float]
    gpus: Mapping[str, int]

    @property
    def models(self) -> tuple[str, ...]:
        """GPU models."""
        return tuple(sorted({model for _, model, _ in self.speed}))

    def of(self, type_: str, spread: bool = False) -> dict[str, float]:
        """Speed of a type on each GPU model where it can run."""
        return {
            model: self.speed[type_, model, spread] for model in self.models if (type_, model, spread) in self.speed
        }


def read_gavel(path: Path = GAVEL) -> Throughputs:
    """Read Gavel's table: steps per second of 83 job types on K80, P100 and V100. The V100 has speed 1."""
    steps: dict[tuple[str, str, bool], float] = {}
    gpus: dict[str, int] = {}
    for line, row in _rows(path, GAVEL_COLUMNS):
        count = int(_number(path, line, row, "gpus"))
        batch = f"/b{row['batch_size']}" if row["batch_size"] else ""
        type_ = f"{row['model']}{batch}/g{count}"
        if row["consolidated"] not in ("0", "1"):
            raise InvalidInput("0 or 1", value=row["consolidated"], key="consolidated", file=str(path), line=line)
        gpus[type_] = count
        steps[type_, row["gpu_model"], row["consolidated"] == "0"] = _number(path, line, row, "steps_per_second")
    return _relative(path, steps, gpus, "v100")


def read_sia(path: Path, models: Iterable[str] = ("aws", "rtx", "dgx-ext"), reference: str = "dgx-ext") -> Throughputs:
    """Read Sia's table for these kinds of machines: examples per second at the best measured batch size.

    A job on one server has a placement of one digit; a spread job has one GPU on each of its servers, or the widest
    measured placement.
    """
    wanted = frozenset(models)
    best: dict[tuple[str, str, bool], tuple[int, float]] = {}
    gpus: dict[str, int] = {}
    for line, row in _rows(path, SIA_COLUMNS):
        if row["table"] != "placements" or row["gpu"] not in wanted:
            continue
        if not row["placement"].isdigit():
            raise InvalidInput(
                "digits, a server each", value=row["placement"], key="placement", file=str(path), line=line
            )
        count, servers = sum(int(digit) for digit in row["placement"]), len(row["placement"])
        if count not in (1, 2, 4, 8):
            continue
        type_ = f"{row['application']}/g{count}"
        seconds = _number(path, line, row, "step_seconds")
        rate = count * _number(path, line, row, "local_batch_size") / seconds if seconds else 0.0
        key = type_, row["gpu"], servers > 1
        best[key] = max(best.get(key, (0, 0.0)), (servers, rate))
        gpus[type_] = count
    return _relative(path, {key: rate for key, (_, rate) in best.items()}, gpus, reference)


def read_table(path: Path) -> Throughputs:
    """Read a table with the columns of Gavel's or of Sia's."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            head = file.readline().strip().split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("a table of measured speeds, CSV, plain or gzip", found=str(error), file=str(path)) from None
    return read_sia(path) if {"application", "placement"} <= set(head) else read_gavel(path)


def _relative(
    path: Path, rate: Mapping[tuple[str, str, bool], float], gpus: Mapping[str, int], reference: str
) -> Throughputs:
    """Speeds relative to the reference, without types that cannot run there and jobs of speed 0."""
    base = {type_: rate.get((type_, reference, False), 0.0) for type_ in gpus}
    speed = {key: value / base[key[0]] for key, value in rate.items() if value > 0 and base[key[0]] > 0}
    for type_, model, spread in list(speed):  # one GPU is never spread; an unmeasured placement counts as the other one
        if (type_, model, not spread) not in speed or (not spread and gpus[type_] == 1):
            speed[type_, model, not spread] = speed[type_, model, spread]
    if not speed:
        raise InvalidInput(f"speeds on {reference}", found="none", file=str(path))
    return Throughputs(reference, speed, {type_: count for type_, count in gpus.items() if base[type_] > 0})


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines of a CSV file, plain or gzip, with their numbers."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                found = ", ".join(table.fieldnames or ()) or "nothing"
                raise InvalidInput(f"the columns {', '.join(columns)}", found=found, file=str(path), line=1)
            for row in table:
                yield table.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput("a table of measured speeds, CSV, plain or gzip", found=str(error), file=str(path)) from None


def _number(path: Path, line: int, row: Mapping[str, str], key: str) -> float:
    try:
        value = float(row[key])
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput("a number ≥ 0", value=row[key], key=key, file=str(path), line=line)
    return value
