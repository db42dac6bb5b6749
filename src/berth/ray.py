"""Run a Python function on a Ray cluster that berth schedules.

```python
import berth.ray

results = berth.ray.submit(train, "resnet", tasks=4, resources={"cpu": 1}).result()
```

berth calls the function once for each task, all together or none, each in its own process on the server that the
service chose; `rank()` and `world_size()` identify the task. `BERTH_URL` and `BERTH_TOKEN` select the service, as for
the command line; it must run with `--engine ray`.

Limits. The function with its arguments is at most some 700 kB when pickled: put larger data into files or Ray's object
store. Functions of an importable module are sent by name, so the nodes need that module. The result of a task is at
most 16 MiB when pickled, and the cluster keeps the latest 256 MiB of results. To fetch results, this process connects
to the cluster (`RAY_ADDRESS`, or the one on this machine) if it has not already.
"""

from __future__ import annotations

import base64
import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from berth.errors import BerthError, MissingExtra

__all__ = ["Handle", "JobFailed", "rank", "role", "server", "submit", "world_size"]

T = TypeVar("T")
ENDED = ("finished", "failed", "cancelled")
FIRST_LOOK, LAST_LOOK = 0.05, 2.0
"""First and longest interval between two polls of a job, in seconds."""


class JobFailed(BerthError):
    """A job did not succeed; the message says how it ended."""


def rank() -> int:
    """Index of this task within its role, from 0; 0 outside a job."""
    return int(os.environ.get("BERTH_RANK", "0"))


def world_size() -> int:
    """Number of tasks in this role of the job; 1 outside a job."""
    return int(os.environ.get("BERTH_TASKS", "1"))


def role() -> str:
    """Role of this task; `task` if the job has no other."""
    return os.environ.get("BERTH_ROLE", "task")


def server() -> str:
    """Server that this task runs on; empty outside a job."""
    return os.environ.get("BERTH_SERVER", "")


def submit(
    function: Callable[..., T],
    /,
    *arguments: Any,
    tasks: int = 1,
    resources: Mapping[str, str | int | float] | None = None,
    type: str | None = None,
    url: str | None = None,
    **spec: Any,
) -> Handle[T]:
    """Submit a function with its arguments; `spec` takes any other field of a job, such as `work` or `retries`.

    `type` defaults to the function's name: jobs of one type are expected to run alike. Jobs with several roles give
    `roles` instead of `tasks` and `resources`.
    """
    from pydantic import ValidationError

    from berth.files.wording import plain_words
    from berth.live.client import Client, path
    from berth.live.core.specs import JobSpec

    pickled = _ray().cloudpickle.dumps(functools.partial(function, *arguments))
    name = getattr(function, "__name__", "")
    given = {"callable": base64.b64encode(pickled).decode(), "type": type or (name if re.match(r"\w", name) else None)}
    if not spec.get("roles"):
        given |= {"tasks": tasks, "resources": dict(resources or {})}
    try:
        made = JobSpec.model_validate({key: value for key, value in {**given, **spec}.items() if value is not None})
    except ValidationError as error:
        raise plain_words(error.errors()[0]) from None
    client = Client(url or os.environ.get("BERTH_URL"))
    key = {"Idempotency-Key": base64.b64encode(os.urandom(18)).decode()}
    found = client.ask(
        "POST", path("jobs"), [made.model_dump(mode="json", exclude_defaults=True)], headers=key, repeat=True
    )
    return Handle(found["jobs"][0]["id"], client)


class Handle(Generic[T]):
    """An accepted job: it survives the end of this process."""

    def __init__(self, job: str, client: Any = None) -> None:
        from berth.live.client import Client

        self.job = job
        self._client = client or Client(os.environ.get("BERTH_URL"))

    def __repr__(self) -> str:
        return f"Handle({self.job!r})"

    def view(self) -> dict[str, Any]:
        """The service's view of the job, such as its `phase`, `places` and `reason`."""
        return self._ask("GET")

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the job has ended; return its last view."""
        until, pause = None if timeout is None else time.monotonic() + timeout, FIRST_LOOK
        while (found := self.view())["phase"] not in ENDED:
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"job {self.job} is {found['phase']} after {timeout:g} s")
            time.sleep(pause)
            pause = min(1.5 * pause, LAST_LOOK)
        return found

    def result(self, timeout: float | None = None) -> list[T]:
        """Wait until the job has succeeded; return the function's result of each task, in order of rank."""
        ended = self.wait(timeout)
        if ended["phase"] != "finished":
            why = ": ".join(part for part in (ended["reason"], ended.get("last_output")) if part)
            raise JobFailed(f"job {self.job} {ended['phase']}: {why or 'no reason was given'}")
        ray = _ray()
        if not ray.is_initialized():
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="ERROR")
        try:
            kept = ray.get(ray.get_actor("keeper", namespace="berth").result.remote(self.job, ended["attempt"]))
        except ValueError:
            kept = None
        if kept is None or any(one is None for one in kept):
            raise JobFailed(f"job {self.job} finished, but the Ray cluster does not have its result (any more)")
        return [ray.cloudpickle.loads(one) for one in kept]

    def cancel(self) -> None:
        """Cancel the job."""
        self._ask("DELETE")

    def explain(self) -> str:
        """Explain why the job waits, and for how long."""
        return str(self._ask("GET", "explain")["text"])

    def _ask(self, method: str, *more: str) -> dict[str, Any]:
        from berth.live.client import path

        found: dict[str, Any] = self._client.ask(method, path("jobs", self.job, *more), repeat=True)
        return found


def _ray() -> Any:
    try:
        import ray
        import ray.cloudpickle
    except ImportError:
        raise MissingExtra("running functions on Ray", "ray") from None
    return ray
