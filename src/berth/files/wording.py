"""Base models of user input, and error messages with place, found and expected."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from berth.errors import InvalidInput, did_you_mean, did_you_mean_elsewhere
from berth.files.quantities import amounts, parse_duration
from berth.files.yaml_tree import Key, Tree, key_text

__all__ = [
    "NAME",
    "TYPE",
    "Amounts",
    "Mistake",
    "Part",
    "Route",
    "Spec",
    "Switch",
    "at_least",
    "by",
    "checked",
    "counted",
    "first_of",
    "part_of",
    "plain_words",
    "said",
    "spoken",
    "tasks_of",
]

NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$"
"""The pattern of names (`berth.live.core.jobs.check_id`)."""
TYPE = r"^[A-Za-z0-9][A-Za-z0-9._@-]*(/[A-Za-z0-9][A-Za-z0-9._@-]*)*$"
"""The pattern of job types, at most 128 long (`berth.live.core.jobs.check_type`)."""
FEW = 12
"""Name all known keys up to this number."""
WORDS = {
    "missing": "this key",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "list_type": "a list",
    "path_type": "a path",
    "json_invalid": "JSON",
    "too_short": "{min_length} or more entries",
    "too_long": "at most {max_length} entries",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "greater_than": "a number > {gt:.15g}",
    "greater_than_equal": "a number ≥ {ge:.15g}",
    "less_than": "a number < {lt:.15g}",
    "less_than_equal": "a number ≤ {le:.15g}",
}


def counted(number: int, what: str) -> str:
    """A number with its noun in singular or plural.

    >>> counted(1, "job"), counted(0, "job")
    ('1 job', '0 jobs')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def spoken(seconds: float | None) -> str:
    """A duration in readable words.

    >>> spoken(90.0), spoken(9000.0), spoken(None)
    ('90 s', '2.5 h', 'no foreseeable time')
    """
    if seconds is None or math.isinf(seconds):
        return "no foreseeable time"
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"


def tasks_of(number: int, role: str) -> str:
    """A number of tasks, with the role unless the job has no roles.

    >>> tasks_of(1, "worker"), tasks_of(4, "task")
    ('1 task of worker', '4 tasks')
    """
    return counted(number, "task") + ("" if role == "task" else f" of {role}")


# ---------------------------------------------------------------------------- models


class Spec(BaseModel):
    """Input written by a user. An unknown key is refused, and the error names the known ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        unknown = [key for key in value if key not in cls.model_fields] if isinstance(value, dict) else []
        if unknown:
            wrong = PydanticCustomError("unknown_key", "an unknown key", {"known": sorted(cls.model_fields)})
            details = [InitErrorDetails(type=wrong, loc=(str(key),), input=value[key]) for key in unknown]
            raise ValidationError.from_exception_data(cls.__name__, details)
        return value

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, which are not validated."""
        return self.model_copy(update=changes)


class Part(Spec):
    """Part of a file. Numbers are strict: `true` is not a number and `2.0` not a count."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


def said(words: str) -> WrapValidator:
    """Describe the expected value by `words` in every validation error."""

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("said", words) from None

    return WrapValidator(check)


class _Inside(ValueError):
    """Carries an `InvalidInput` about part of a value through pydantic."""

    def __init__(self, error: InvalidInput) -> None:
        self.error = error
        super().__init__(str(error))


def by(check: Callable[[Any], Any], schema: Any = None) -> BeforeValidator:
    """Validate with a function that raises `InvalidInput`, whose key is relative to the value.

    `schema` is the type shown in the API documentation.
    """

    def run(value: Any) -> Any:
        try:
            return check(value)
        except InvalidInput as error:
            raise _Inside(error) from None

    return BeforeValidator(run) if schema is None else BeforeValidator(run, json_schema_input_type=schema)


def _amounts(value: object) -> object:
    if isinstance(value, Mapping):
        amounts({str(name): item for name, item in value.items()}, "")
    return value


Amounts = Annotated[dict[str, str | int | float], by(_amounts), Field(max_length=64)]
"""Amounts by resource, such as `{cpu: 500m, memory: 16Gi}`."""
_SWITCH = {"yes": True, "on": True, "no": False, "off": False}
Switch = Annotated[
    bool, Field(strict=True), BeforeValidator(lambda v: _SWITCH.get(v.lower(), v) if isinstance(v, str) else v)
]
"""True or false; also `yes`, `no`, `on` and `off`, which are texts in YAML 1.2."""


# ---------------------------------------------------------------------------- mistakes


@dataclass(frozen=True)
class Mistake:
    """One mistake: the place, the expected value, and the found one, as a value or in words."""

    key: Key
    expected: str
    value: Any = ...
    found: str | None = None


Model = TypeVar("Model", bound=BaseModel)


def checked(
    tree: Tree,
    model: type[Model],
    across: Callable[[Model], Iterable[Mistake]] = lambda _: (),
    elsewhere: Mapping[str, str] | None = None,
) -> Model:
    """Validate the settings of this tree; raise `InvalidInput` for the first mistake, with the others below it.

    `across` checks what pydantic cannot: names that must exist or be unique, lists and limits that must match.
    `elsewhere` maps each key that only other families have to its family, for a scenario.
    """
    try:
        settings = model.model_validate(tree.value)
    except ValidationError as error:
        mistakes = [_mistake(detail, elsewhere=elsewhere) for detail in error.errors()]
    else:
        mistakes = list(across(settings))
        if not mistakes:
            return settings
    raise first_of(mistakes, tree)


def part_of(tree: Tree, key: str, model: type[Model]) -> Model:
    """Validate the settings under one key before all others."""
    try:
        return model.model_validate(tree.value[key])
    except ValidationError as error:
        mistakes = [_mistake({**detail, "loc": (key, *detail["loc"])}) for detail in error.errors()]
    raise first_of(mistakes, tree)


def first_of(mistakes: list[Mistake], tree: Tree) -> InvalidInput:
    """The error for the first mistake; it lists the others."""

    def order(mistake: Mistake) -> tuple[bool, int]:
        # an override has no line and was just typed: it comes first
        line = tree.place(mistake.key)[1]
        return line is not None, line or 0

    def told(mistake: Mistake, others: Sequence[InvalidInput] = ()) -> InvalidInput:
        file, line = tree.place(mistake.key)
        key = key_text(mistake.key) or None
        return InvalidInput(
            mistake.expected, value=mistake.value, found=mistake.found, key=key, file=file, line=line, others=others
        )

    first, *others = sorted(mistakes, key=order)
    return told(first, [told(other) for other in others])


def plain_words(detail: Mapping[str, Any], *outside: str) -> InvalidInput:
    """Convert one of pydantic's errors to `InvalidInput`; parts of the place that are `outside` are left out.

    >>> class Size(Spec):
    ...     tasks: int = 1
    >>> try:
    ...     Size.model_validate({"taks": 2})
    ... except ValidationError as error:
    ...     print(plain_words(error.errors()[0]))
    taks: got an unknown key, expected one of tasks; did you mean 'tasks'?
    """
    found = _mistake(detail, outside)
    key = ".".join(str(part) for part in found.key) or None
    return InvalidInput(found.expected, value=found.value, found=found.found, key=key)


def _mistake(
    detail: Mapping[str, Any], outside: tuple[str, ...] = (), elsewhere: Mapping[str, str] | None = None
) -> Mistake:
    """Convert one of pydantic's errors to a mistake; tags of unions, written `<tag>`, are not part of its place."""
    kind, context = detail["type"], detail.get("ctx") or {}
    value: Any = detail.get("input")
    key: Key = tuple(
        part for part in detail["loc"] if part not in ("[key]", *outside) and not re.fullmatch("<.*>", str(part))
    )
    if isinstance(inside := context.get("error"), _Inside):
        own = (inside.error.key or "").strip(".")
        return Mistake((*key, own) if own else key, inside.error.expected, inside.error.value, inside.error.found)
    if kind == "missing":
        return Mistake(key, WORDS[kind], found="nothing")
    if kind == "unknown_key":
        known, name = context["known"], str(key[-1])
        others: Mapping[str, str] = {}
        if len(key) == 1 and elsewhere is not None:
            if name in elsewhere:
                return Mistake(key, f"family: {elsewhere[name]} beside it", found="a key of another family")
            known, others = sorted([*known, "extends"]), elsewhere  # extends: removed before the settings are built
        hint = did_you_mean_elsewhere(name, known, others)
        expected = "another" if hint and len(known) > FEW else f"one of {', '.join(known)}"
        return Mistake(key, expected + hint, found="an unknown key")
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        if kind == "union_tag_invalid":  # only `arrivals` has a tag that the user writes
            key, value = (*key, "process"), value["process"]
        options = re.findall(r"'<?([^'<>]*)>?'", str(context.get("expected") or context.get("expected_tags")))
        expected = f"{'one of ' if len(options) > 1 else ''}{', '.join(options)}{did_you_mean(value, options)}"
    elif kind == "string_pattern_mismatch" and context.get("pattern") == NAME:
        expected = "letters, digits and . _ @ -, at most 128, first a letter or digit"
    elif kind == "string_pattern_mismatch" and context.get("pattern") == TYPE:
        expected = "letters, digits and . _ @ -, at most 128, with / between the parts of a path"
    elif kind == "too_short" and context["min_length"] == 1:
        expected = "at least one entry"
    elif kind in WORDS:
        expected = WORDS[kind].format_map(context)
    else:
        told = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        expected = told.removeprefix("expected ").replace("a valid ", "a ")
    if not isinstance(value, dict | list | None):
        return Mistake(key, expected, value)
    if value and isinstance(value, list) and len(value) <= 4 and not any(isinstance(v, dict | list) for v in value):
        return Mistake(key, expected, value)
    if kind == "value_error" and value is not None:  # a validator of the whole mapping or list with its own message
        return Mistake(key, expected)
    shape = "nothing" if value is None else "a mapping" if isinstance(value, dict) else "a list"
    return Mistake(key, expected, found=f"an empty {shape[2:]}" if value is not None and not value else shape)


def at_least(low: float) -> BeforeValidator:
    """A duration of at least this many seconds."""

    def check(value: object) -> float:
        seconds = parse_duration(value, "")
        if seconds < low:
            raise InvalidInput(f"a duration of at least {low:g} s", value=value)
        return seconds

    return by(check)


def _route(value: object) -> object:
    if value == "":
        raise InvalidInput("a path", value=value)
    return Path(value).expanduser() if isinstance(value, str) else value


Route = Annotated[Path, by(_route)]
"""A path; `~` is the home directory."""
