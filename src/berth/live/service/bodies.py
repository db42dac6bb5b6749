"""Bodies of requests that submit jobs: one job, or a list of them.

Many jobs are checked in a thread and one by one, because neither the event loop nor another thread runs while pydantic
checks a list.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import (
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from berth.live.core.specs import JobSpec
from berth.live.service.problems import SHAPES
from berth.live.service.scheduler import FEW, aside

__all__ = ["OneOrMany", "read_specs"]

BATCH = 10_000
"""The most jobs of a request."""
ONE, MANY = SHAPES


def _unless_many(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check a body, but leave one with many jobs as it is, for `read_specs`."""
    return given if isinstance(given, list) and FEW < len(given) <= BATCH else check(given)


OneOrMany = Annotated[
    Annotated[JobSpec, Tag(ONE)] | Annotated[list[JobSpec], Field(min_length=1, max_length=BATCH), Tag(MANY)],
    Discriminator(lambda given: MANY if isinstance(given, list) else ONE),
    WrapValidator(_unless_many),
]
_SPEC = TypeAdapter(JobSpec)


async def read_specs(body: JobSpec | list[Any]) -> list[JobSpec]:
    """The jobs of a body; if some are invalid, the same error as FastAPI raises."""
    given = body if isinstance(body, list) else [body]
    return await aside(len(given), lambda: _checked(given))


def _checked(given: list[Any]) -> list[JobSpec]:
    specs, errors = list[JobSpec](), list[Any]()
    for number, one in enumerate(given):
        try:
            specs.append(one if isinstance(one, JobSpec) else _SPEC.validate_python(one))
        except ValidationError as error:
            found = error.errors(include_url=False)
            errors += [{**detail, "loc": ("body", MANY, number, *detail["loc"])} for detail in found]
    if errors:
        raise RequestValidationError(errors)
    return specs
