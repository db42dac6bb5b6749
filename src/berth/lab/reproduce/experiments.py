"""Experiments: figures and tables of papers, one YAML file each, under `berth/data/experiments/PAPER/ID.yaml`.

An experiment defines what is run (`sweep`, at each point of its grid; `parts` are several sweeps that share the rest),
a version that takes seconds (`quick`), the `plots`, and the paper's `claims`. A claim is always about an *effect*: the
relative excess of one number over another, 0.1133 for 11.33 % more.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from berth.errors import BerthError, InvalidInput, UnknownName
from berth.files.yaml_tree import key_text, read_file
from berth.registry import PolicySpec

__all__ = [
    "PAPERS",
    "Changes",
    "Claim",
    "Experiment",
    "Plot",
    "Setting",
    "chosen",
    "experiment_names",
    "load_experiment",
    "settings_of",
]

FOLDER = Path(__file__).parents[2] / "data" / "experiments"

PAPERS = {
    "ogasched": "OGASched: Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning (two versions)",
    "esdp": "ESDP: multi-server jobs by efficient sampling and dynamic programming (two versions)",
    "drl-greedy": "DRL-Greedy: online scheduling of tasks by deep reinforcement learning and greedy optimisation",
}
"""Papers in display order; each has a folder of experiments."""

Where = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Changes(_Part):
    """What is run, or overrides of it, with the keys of a sweep file."""

    scenario: str | None = None
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] | None = None
    set: dict[str, Any] | None = None
    policies: Annotated[list[str], Field(min_length=1)] | None = None
    seeds: Annotated[int, Field(ge=2)] | Annotated[list[int], Field(min_length=2)] | None = None
    baseline: str | None = None
    arrivals: Literal["hidden", "revealed", "both"] | None = None
    oracles: list[str] | None = None
    trace: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="file in the folder of traces that the scenario plays, if present"
    )

    def under(self, other: Changes) -> Changes:
        """These values overridden by the other's; `set` is merged, all else replaced."""
        merged = {**(self.set or {}), **(other.set or {})}
        said = {name: value for name in Changes.model_fields if (value := getattr(other, name)) is not None}
        return Changes.model_construct(**{**self._said(), **said, "set": merged})

    def _said(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Changes.model_fields}


class Quick(Changes):
    """Overrides of the quick version; its `parts`, if given, replace all others."""

    parts: Annotated[list[Changes], Field(min_length=1)] | None = None


class Plot(_Part):
    """A plot: `curve` over slots, `line` over a key of the grid, `bars` for each point, `cdf` of decision times."""

    kind: Literal["curve", "line", "bars", "cdf"]
    title: str
    metric: str = "reward"
    show: Literal["average", "cumulative", "ratio"] = "average"
    x: str | None = None
    over: str | None = None
    policies: list[str] | None = None
    arrivals: Literal["hidden", "revealed"] = "revealed"
    where: Where = Field(default_factory=dict)
    log: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind == "line") != (self.x is not None):
            raise ValueError("x, the key along the axis, for a line and for nothing else")
        if self.kind == "curve" and (self.show == "ratio") != (self.over is not None):
            raise ValueError("over, the policy that others are divided by, for show: ratio and for nothing else")
        return self


class Claim(_Part):
    """The paper's statement of one effect: the relative excess of a policy's `metric` over what it is compared with.

    The policy is compared with another policy, an oracle or a number (`over`), or with itself at other points
    (`against`). With both, its lead over the other policy (the ratio, or the difference if not all are positive) is
    compared with its lead at other points. `where` selects the points; effects are averaged over several. `value` is
    the effect that the paper prints; if it prints none, `direction` gives the sign. `until` uses the first slots only;
    `total` uses sums over a run instead of means per slot, for runs of different length.

    `unclear` says what the paper leaves open and the claim depends on: then it cannot be judged, and `readings` are
    other ways to read it, as overrides of this claim. The range of their effects is given instead.
    """

    says: Annotated[str, Field(min_length=1)]
    policy: str | None = Field(
        default=None, description="default: the experiment's `printed`; if set, there is no best"
    )
    over: str | float | None = None
    against: Where | None = None
    where: Where = Field(default_factory=dict)
    arrivals: Literal["hidden", "revealed"] = "revealed"
    metric: str = "reward"
    until: Annotated[int, Field(ge=1)] | None = None
    total: bool = False
    value: float | None = None
    direction: Literal["more", "less", "same"] | None = None
    best: str | None = None
    unclear: Annotated[str, Field(min_length=1)] | None = None
    readings: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def other_readings(self) -> list[Claim]:
        """The claim in its other readings."""
        return [Claim.model_validate({**self.model_dump(), "readings": [], **reading}) for reading in self.readings]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.readings and self.unclear is None:
            raise ValueError("unclear, what the paper leaves open, for claims with readings")
        if self.over is None and self.against is None:
            raise ValueError("over, against or both")
        if self.against is not None and isinstance(self.over, float):
            raise ValueError("a policy to be over, where there is also against")
        if (self.value is None) == (self.direction is None):
            raise ValueError("one of value and direction")
        if self.value == 0:
            raise ValueError("a value other than 0, or direction: same")
        if self.over == 0:
            raise ValueError("a number other than 0 to compare with")
        return self


class Unclear(_Part):
    """Why nothing can be judged by a baseline, and the policies that it may also be read as."""

    why: Annotated[str, Field(min_length=1)]
    readings: list[str] = Field(default_factory=list)


class Experiment(_Part):
    """One figure or table of a paper; what `unclear` says of a baseline holds for all claims to be over it."""

    name: Annotated[str, Field(description="PAPER/ID, from the path of the file")]
    paper: str
    figure: Annotated[str, Field(min_length=1, description="number in the paper")]
    title: Annotated[str, Field(min_length=1)]
    what: Annotated[str, Field(min_length=1, description="what is run, and how gaps in the paper were filled")]
    data: Annotated[str, Field(min_length=1, description="synthetic, or the workload it was fitted to")] = "synthetic"
    minutes: Annotated[float, Field(gt=0, description="run time on two cores")]
    sweep: Changes
    parts: Annotated[list[Changes], Field(min_length=1)] = Field(default_factory=lambda: [Changes()])
    quick: Quick
    printed: str
    best: str
    plots: list[Plot] = Field(default_factory=list)
    claims: Annotated[list[Claim], Field(min_length=1)]
    unclear: dict[str, Unclear] = Field(default_factory=dict)
    digest: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.paper not in PAPERS:
            raise ValueError(f"a paper: {', '.join(PAPERS)}")
        for quick in (False, True):
            for part in _parts(self, quick):
                for key in ("scenario", "policies", "seeds"):
                    if not getattr(part, key):
                        raise ValueError(f"sweep: {key}, in the sweep or in each of its parts")
        self.claims[:] = [self._as_far_as_clear(claim) for claim in self.claims]
        return self

    def _as_far_as_clear(self, claim: Claim) -> Claim:
        """The claim, with what is unclear about the baseline it is over."""
        told = self.unclear.get(claim.over) if isinstance(claim.over, str) else None
        if told is None or claim.unclear is not None:
            return claim
        return claim.model_copy(update={"unclear": told.why, "readings": [{"over": name} for name in told.readings]})

    @property
    def order(self) -> tuple[int, str]:
        """Sort key among all experiments."""
        return list(PAPERS).index(self.paper), self.name


@dataclass(frozen=True)
class Setting:
    """A point of an experiment: a scenario, its overrides, and how it is run.

    `keys` are what the points differ in: keys of the grid, `trace` if the point plays one, and `scenario` if parts
    differ in it. `berth.lab.reproduce.traces` finds the file of a trace.
    """

    number: int
    scenario: str
    changes: Mapping[str, Any]
    keys: Mapping[str, Any]
    run: Changes

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.keys.items()) or self.scenario

    @property
    def trace(self) -> str | None:
        """Trace that the point plays, as the experiment names it."""
        return self.run.trace

    def is_at(self, where: Mapping[str, Any]) -> bool:
        """Whether the point matches."""
        missing = object()
        return all(self.keys.get(key, missing) == value for key, value in where.items())


def _parts(experiment: Experiment, quick: bool) -> list[Changes]:
    """Complete sweeps of an experiment."""
    fast = experiment.quick
    parts = fast.parts if quick and fast.parts else experiment.parts
    whole = [experiment.sweep.under(part) for part in parts]
    return [part.under(fast) for part in whole] if quick else whole


def settings_of(experiment: Experiment, quick: bool = False) -> list[Setting]:
    """All points of an experiment, without duplicates."""
    parts = _parts(experiment, quick)
    several = len({part.scenario for part in parts}) > 1
    found: list[Setting] = []
    for part in parts:
        grid = part.grid or {}
        for values in itertools.product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            played = {} if part.trace is None else {"trace": part.trace}
            keys = {**({"scenario": part.scenario} if several else {}), **played, **point}
            changes = {**(part.set or {}), **point}
            found.append(Setting(len(found), str(part.scenario), changes, keys, part))
    return found


def experiment_names() -> list[str]:
    """All experiments as PAPER/ID, by paper.

    >>> experiment_names()[0].split("/")[0]
    'ogasched'
    """
    return [
        f"{paper}/{path.stem}"
        for paper in PAPERS
        for path in sorted((FOLDER / paper).glob("*.yaml"), key=lambda path: _natural(path.stem))
    ]


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key that puts fig-2 before fig-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", text)]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Experiments selected by `all`, a paper, PAPER/ID or a file; without duplicates, in the order of papers.

    >>> chosen(["ogashed"])
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown experiment 'ogashed'; did you mean 'ogasched'?
    """
    known = experiment_names()
    found: dict[str, Experiment] = {}
    for name in names:
        if name == "all":
            meant: list[str | Path] = list(known)
        elif name in known:
            meant = [name]
        elif name in PAPERS:
            meant = [item for item in known if item.startswith(f"{name}/")]
        elif Path(name).suffix in (".yaml", ".yml"):
            meant = [Path(name)]
        else:
            raise UnknownName("experiment", name, [*PAPERS, "all", *known])
        for item in meant:
            experiment = load_experiment(item)
            found.setdefault(experiment.name, experiment)
    if not found:
        raise InvalidInput("at least one experiment, a paper, or all", key="experiments")
    return list(found.values())


def load_experiment(name: str | Path) -> Experiment:
    """Read and check an experiment, by PAPER/ID or from a file.

    >>> load_experiment(Path("nowhere.yaml"))
    Traceback (most recent call last):
    berth.errors.InvalidInput: nowhere.yaml: ...
    """
    file = FOLDER / f"{name}.yaml" if isinstance(name, str) else name
    tree = read_file(file, "experiment")
    own = f"{file.parent.name}/{file.stem}" if file.parent.name in PAPERS else file.stem
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    try:
        found = Experiment.model_validate({"name": own, **tree.value, "digest": digest})
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(part for part in first["loc"] if not str(part).startswith(("function-", "constrained-")))
        given = first.get("input")
        shown = ... if isinstance(given, dict | list) or first["type"] == "missing" else given
        said = first["msg"].removeprefix("Value error, ").lower()
        line = tree.place(place)[1]
        raise InvalidInput(said, value=shown, key=key_text(place), file=file, line=line) from None
    _check_names(found, file)
    return found


def _check_names(experiment: Experiment, file: Path) -> None:
    """Refuse claims and plots that name a policy, an oracle or a point that the sweep does not have."""
    settings = settings_of(experiment)
    listed = [(f"claims[{place}]", claim) for place, claim in enumerate(experiment.claims)]
    listed += [
        (f"{key}.readings[{number}]", reading)
        for key, claim in listed
        for number, reading in enumerate(claim.other_readings)
    ]
    for key, claim in listed:
        meant = {"where": claim.where} | ({} if claim.against is None else {"against": claim.against})
        for name, where in meant.items():
            if not any(setting.is_at(where) for setting in settings):
                raise InvalidInput("a point of the sweep", value=where, key=f"{key}.{name}", file=file)
        ours = [setting for setting in settings if any(setting.is_at(where) for where in meant.values())]
        subject = claim.policy or experiment.printed
        for name, policy in (("policy", subject), ("best", claim.best or experiment.best), ("over", claim.over)):
            if isinstance(policy, str):
                _check_policy(policy, ours, name == "over", f"{key}.{name}", file)
    for place, plot in enumerate(experiment.plots):
        ours = [setting for setting in settings if setting.is_at(plot.where)]
        if not ours:
            raise InvalidInput("a point of the sweep", value=plot.where, key=f"plots[{place}].where", file=file)
        if plot.x is not None and not any(plot.x in setting.keys for setting in ours):
            raise InvalidInput("a key of the grid", value=plot.x, key=f"plots[{place}].x", file=file)
        for policy in [*(plot.policies or []), *([plot.over] if plot.over else [])]:
            _check_policy(policy, ours, False, f"plots[{place}]", file)


def _check_policy(name: str, settings: Sequence[Setting], oracle: bool, key: str, file: Path) -> None:
    for setting in settings:
        run = [_canonical(text, "policies", file) for text in setting.run.policies or []]
        if oracle and name in (setting.run.oracles or []):
            continue
        if _canonical(name, key, file) not in run:
            raise InvalidInput(f"a policy that is run at {setting}", value=name, key=key, file=file)


def _canonical(name: str, key: str, file: Path) -> str:
    """Canonical spelling of a policy."""
    try:
        return str(PolicySpec.parse(name))
    except BerthError as error:
        raise InvalidInput("a policy", found=str(error), key=key, file=file) from None
