"""Tables of measured training speeds: how fast a training job runs on which GPU, on one server or spread over several.

Gavel's table (Narayanan et al., OSDI 2020; MIT licence) ships with berth. Sia's (Jayaram Subramanya et al., SOSP 2023)
has no licence: it is read from where the user has it.
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

__all__ = ["Throughputs", "read_gavel", "read_sia"]

GAVEL = HOME / "data" / "throughputs" / "gavel.csv"
GAVEL_COLUMNS = ("model", "batch_size", "gpus", "gpu_model", "consolidated", "steps_per_second")
SIA_COLUMNS = ("application", "gpu", "table", "placement", "local_batch_size", "step_seconds")


@dataclass(frozen=True)
class Throughputs:
    """Speeds of types of jobs, relative to the `reference` GPU on as few servers as possible, which is 1.

    A type is a path: model, batch size where there is one, number of GPUs. `speed` is by type, GPU and whether the job
    is spread over several servers; where a job cannot run it has no entry. `gpus` is the number of GPUs of each type.

    >>> table = read_gavel()
    >>> len(table.gpus), table.speed["LM/b10/g4", "v100", True].__round__(2)
    (83, 0.31)
    """

    reference: str
    speed: Mapping[tuple[str, str, bool], float]
    gpus: Mapping[str, int]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of GPUs."""
        return tuple(sorted({model for _, model, _ in self.speed}))

    def of(self, type_: str, spread: bool = False) -> dict[str, float]:
        """The speed of a type on each model of GPU where it can run."""
        return {
            model: self.speed[type_, model, spread] for model in self.models if (type_, model, spread) in self.speed
        }


def read_gavel(path: Path = GAVEL) -> Throughputs:
    """Gavel's table: steps a second of 83 types of jobs on K80, P100 and V100. Speed 1 is that of the V100."""
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
    """Sia's table, for these kinds of machines: examples a second at the best measured batch size.

    A job on one server has the placement of one digit; a spread one has a GPU on each of its servers, or is spread as
    widely as was measured.
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


def _relative(
    path: Path, rate: Mapping[tuple[str, str, bool], float], gpus: Mapping[str, int], reference: str
) -> Throughputs:
    """Speeds relative to the reference; types that cannot run there, and jobs of speed 0, are left out."""
    base = {type_: rate.get((type_, reference, False), 0.0) for type_ in gpus}
    speed = {key: value / base[key[0]] for key, value in rate.items() if value > 0 and base[key[0]] > 0}
    for type_, model, spread in list(speed):  # one GPU is never spread, and what was not measured is as on one server
        if not spread and (gpus[type_] == 1 or (type_, model, True) not in speed):
            speed[type_, model, True] = speed[type_, model, False]
    if not speed:
        raise InvalidInput(f"speeds on {reference}", found="none", file=str(path))
    return Throughputs(reference, speed, {type_: count for type_, count in gpus.items() if base[type_] > 0})


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """The lines of a CSV file, plain or gzip, with their numbers."""
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
