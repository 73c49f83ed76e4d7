"""The API does what its document says: whatever is sent, no 5xx, and no answer that is not documented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode

from relevo.http.rules import RULES
from serving import Served

EXAMPLES = 8
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
QUICKLY = ("/v1/events", "/v1/events/{event_id}")
"""What may wait, and is not waited for here."""


def test_the_document_holds(serve: Callable[..., Served]) -> None:
    """Every route, called with what fits its schema and with what does not, answers as documented."""
    served = serve(http_rate_per_second=0, http_pool_wait_ms=60_000, database_connect_timeout_ms=60_000)
    headers = {"Authorization": f"Bearer {served.client('operator').token}"}
    document = schemathesis.openapi.from_url(f"{served.server.url}/openapi.json")
    tried: set[tuple[str, str]] = set()
    for found in document.get_all_operations():
        operation = found.ok()
        tried.add((operation.method.upper(), operation.path))
        _try(operation, headers)
    hidden = {("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json")}
    pages = ("/dashboard/", "/guide")  # for people, not for programs
    hidden |= {key for key, rule in RULES.items() if rule.page or key[1].startswith(pages)}
    assert tried == set(RULES) - hidden


def _try(operation: Any, headers: dict[str, str]) -> None:
    strategy = operation.as_strategy(generation_mode=GenerationMode.POSITIVE) | operation.as_strategy(
        generation_mode=GenerationMode.NEGATIVE
    )

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def call(case: Any) -> None:
        if operation.path in QUICKLY and operation.method.upper() != "PUT":
            case.query = {**(case.query or {}), "wait_ms": 0}
        case.call_and_validate(headers=headers, checks=CHECKS)

    call()
