"""Words: numbers of things, and what pydantic finds wrong, with its place, what was there and what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from berth.errors import InvalidInput, did_you_mean

__all__ = ["NAME", "Inside", "Spec", "counted", "plain_words", "spoken", "tasks_of"]

NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$"
"""What names look like (`berth.live.core.jobs.check_id`)."""
FEW = 12
"""So many known keys are all named."""
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
    "json_invalid": "JSON",
    "too_short": "{min_length} or more items",
    "too_long": "at most {max_length} items",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "greater_than": "a number > {gt:.15g}",
    "greater_than_equal": "a number ≥ {ge:.15g}",
    "less_than": "a number < {lt:.15g}",
    "less_than_equal": "a number ≤ {le:.15g}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "job"), counted(0, "job")
    ('1 job', '0 jobs')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def spoken(seconds: float | None) -> str:
    """A time as people say it.

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
    """A number of tasks; that of a job without roles has no name of its own.

    >>> tasks_of(1, "worker"), tasks_of(4, "task")
    ('1 task of worker', '4 tasks')
    """
    return counted(number, "task") + ("" if role == "task" else f" of {role}")


class Spec(BaseModel):
    """Something a person writes. A key that is not there is refused with those that are."""

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


class Inside(ValueError):
    """Carries what is wrong inside a value through pydantic, with its own place and value."""

    def __init__(self, error: InvalidInput) -> None:
        self.error = error
        super().__init__(str(error))


def plain_words(detail: Mapping[str, Any], *outside: str) -> InvalidInput:
    """One of pydantic's errors as ours; parts of the place that are `outside` are left out.

    >>> class Size(Spec):
    ...     tasks: int = 1
    >>> try:
    ...     Size.model_validate({"taks": 2})
    ... except ValidationError as error:
    ...     print(plain_words(error.errors()[0]))
    taks: got an unknown key, expected one of tasks; did you mean 'tasks'?
    """
    kind, context, value = detail["type"], detail.get("ctx") or {}, detail.get("input")
    parts = [str(part) for part in detail["loc"] if part not in ("[key]", *outside)]
    key = ".".join(parts) or None
    if isinstance(inside := context.get("error"), Inside):
        return inside.error.at(key=key)
    if kind == "missing":
        return InvalidInput(WORDS[kind], found="nothing", key=key)
    if kind == "unknown_key":
        hint = did_you_mean(parts[-1], context["known"])
        known = "a known key" if hint and len(context["known"]) > FEW else f"one of {', '.join(context['known'])}"
        return InvalidInput(known + hint, found="an unknown key", key=key)
    if kind == "string_pattern_mismatch" and context.get("pattern") == NAME:
        expected = "letters, digits and . _ @ -, at most 128, first a letter or digit"
    elif kind in WORDS:
        expected = WORDS[kind].format_map(context)
    else:
        said = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        expected = said.removeprefix("expected ").replace("a valid ", "a ")
    if isinstance(value, str | int | float):
        return InvalidInput(expected, value=value, key=key)
    shape = {type(None): "nothing", list: "a list", dict: "a mapping"}.get(type(value))
    return InvalidInput(expected, found=shape if kind.endswith("_type") else None, key=key)
