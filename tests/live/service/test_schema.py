"""The API against its own schema: whatever is sent, nothing fails inside, and answers are as they are described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from berth.live.service.store import Store, Token
from berth.live.service.tokens import digest, new_secret
from tests.live.service.live import Live, serving

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
ROLES = ("operate", "submit")
KNOWN = {"job": "a", "server": "cpu-0"}
ENDLESS = ["/v1/events", "/v1/what-if"]
"""A stream, and what plays a history in a process of its own for each request."""


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    """A token of each role."""
    return {role: new_secret() for role in ROLES}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> Iterator[Live]:
    """A service with a job that runs."""
    folder = tmp_path_factory.mktemp("schema")
    store = Store(str(folder / "berth.db"))
    for role, secret in secrets.items():
        store.add_token(Token(role, digest(secret), role, role, 0.0))
    store.close()
    with serving(folder) as found:
        job = {"name": "a", "resources": {"cpu": 1}, "work": 100_000}
        found.ask("POST", "/v1/jobs", job, secrets["operate"])
        yield found


@pytest.mark.parametrize(
    ("role", "examples"),
    [
        ("operate", 8),
        ("submit", 3),
        pytest.param("operate", 40, marks=pytest.mark.slow),
        pytest.param("submit", 10, marks=pytest.mark.slow),
    ],
)
def test_whatever_is_sent_the_answer_is_as_described(
    live: Live, secrets: dict[str, str], role: str, examples: int
) -> None:
    """With so many requests for each operation, with a token of this role."""
    described = schemathesis.openapi.from_url(f"{live.url}/v1/openapi.json").exclude(path=ENDLESS)
    failed = []
    answers: Counter[tuple[str, int]] = Counter()
    for found in described.get_all_operations():
        assert isinstance(found, Ok)
        operation: Any = found.ok()

        @settings(
            max_examples=examples,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)),
            known=st.booleans(),
        )
        def sent(case: schemathesis.Case[Any], known: bool) -> None:
            if known and case.path_parameters:
                case.path_parameters = {name: KNOWN[name] for name in case.path_parameters}
            headers = {"Authorization": f"Bearer {secrets[role]}"}
            if case.media_type is None:
                headers["Content-Type"] = "application/json"  # also where there is no body
            answers[case.operation.label, case.call_and_validate(checks=CHECKS, headers=headers).status_code] += 1

        try:
            sent()
        except Exception as error:
            failed.append(f"{operation.label}: {error}"[:1500])
        live.ask("PUT", "/v1/queues", {"queues": {"default": {}}}, secrets["operate"])
    assert not failed, "\n\n".join(failed)
    assert len({label for label, _ in answers}) > 20
    assert {201, 404, 422} <= {status for _, status in answers}
    assert ("POST /v1/servers/{server}/drain", 200 if role == "operate" else 403) in answers
    assert live.ask("GET", "/readyz", token=secrets["operate"])["ready"]
