"""The API does what its document says, whoever calls: no 5xx, no answer that is not documented, no promise that is broken."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema_rs
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode

from relevo.access import api_tokens, sessions
from relevo.http.guard import COOKIE
from relevo.http.rules import RULES
from support import soak
from support.http_server import Served
from support.push_tokens import subscription

EXAMPLES = soak.cases(3, whole=25)
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
QUICKLY = ("/v1/events", "/v1/events/{event_id}", "/v1/inbox")
"""What may wait, and is not waited for here."""
BEYOND_A_SCHEMA = re.compile(
    r"key: must be given, here or as the header"
    r"|Idempotency-Key: differs"
    r"|together must fit into"
    r"|push\.([a-z]+\.)?actions must have another id"
    r"|^token must"
    r"|NUL"
    r"|(installation_id, token or owner|key or title) must be given"
    r"|deadline_at|scheduled_at"
    r"|monto_max must|monto_min|moneda must"
    r"|an event must say something"
    r"|goes with no project"
    r"|batch is for events"
    r"|there is no category"
    r"|environment goes with provider apns alone"
    r"|whose inbox it is"
    r"|has no texts that arguments could go into"
    r"|no quiet hours yet whose zone could change"
    r"|leave some time of the week|which is not among the arguments|is named by no text|is not a pattern that ICU takes|must name every locale once"
    r"|is to be as|default must be|of argument \w+ must be a|zone must be|shows nothing|characters once rendered"
)
"""What depends on two parts of a request, on a size or text once rendered, on the push service or on what is saved."""


def callers(served: Served) -> dict[str, dict[str, str]]:
    """Return the headers of everybody who may call: each role, one of a single project, a session, a phone, nobody."""
    database = served.app.database
    roles = {role: served.client(role).token for role in ("operator", "app", "viewer")}
    said = {role: {"Authorization": f"Bearer {token}"} for role, token in roles.items()}
    said["scoped"] = {"Authorization": f"Bearer {served.client('app', project='default').token}"}
    session = sessions.begin(database, api_tokens.make(database, "person", "operator")[1])
    said["session"] = {"Cookie": f"{COOKIE}={session}"}
    installation = "018f3c1e-7c1a-4a58-9d43-6a2f0c9b1d11"
    made = served.client("app").call("PUT", f"/v1/installations/{installation}", json={})
    said["phone"] = {"Authorization": f"Bearer {made.json()['secret']}"}
    return said | {"nobody": {}}


def test_the_document_holds(serve: Callable[..., Served]) -> None:
    """Every route, called by everybody with what fits its schema and with what does not, answers as documented.

    And an operator's request that fits is not refused over what a schema could have said.
    """
    served = serve(http_rate_per_second=0, http_pool_wait_ms=60_000, database_connect_timeout_ms=60_000)
    everybody = {who: _session(headers) for who, headers in callers(served).items()}
    document = schemathesis.openapi.from_url(f"{served.server.url}/openapi.json", timeout=60)
    tried: set[tuple[str, str]] = set()
    broken: dict[str, str] = {}

    turns = cycle(who for who in everybody if who != "operator")

    def call(case: Any) -> None:
        # The others take turns; test_rules has everybody call every route.
        for who in soak.cases(["operator", next(turns)], whole=list(everybody)):
            session = everybody[who]
            answer = case.call(session=session)
            session.cookies.clear()
            case.validate_response(answer, checks=CHECKS)
            if who == "operator" and answer.status_code == 400 and case.meta.generation.mode is GenerationMode.POSITIVE:
                told = answer.json()["detail"]
                broken.update({} if BEYOND_A_SCHEMA.search(told) else {f"{case.method} {case.path}": told})

    for found in document.get_all_operations():
        operation = found.ok()
        tried.add((operation.method.upper(), operation.path))
        _generate(operation, call)
    for session in everybody.values():
        session.close()
    assert broken == {}
    hidden = {("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/favicon.ico")}
    pages = ("/dashboard/", "/guide")  # for people, not for programs
    hidden |= {key for key, rule in RULES.items() if rule.page or key[1].startswith(pages)}
    assert tried == set(RULES) - hidden


def _session(headers: dict[str, str]) -> requests.Session:
    """Return a connection that says who calls, and is kept: opening one for each call takes a fifth of the time."""
    session = requests.Session()
    session.trust_env = False
    session.headers.update(headers)
    return session


REFUSED = [
    ("/v1/events", {"type": "t", "key": "k", "title": "x", "audience": "everyone", "category": ""}),
    ("/v1/events", {"type": "t", "key": "k", "title": "x", "audience": "everyone", "ttl_s": "10"}),
    ("/v1/events", {"type": "t", "key": "k", "title": "x", "audience": "everyone", "licitacion_id": 2**63}),
    ("/v1/events/batch", {"events": [{"type": "t", "title": "x", "audience": "everyone"}]}),
    ("/v1/owners/quiet", {"owner": "ana"}),
    ("/v1/ops/redrive", {}),
    ("/v1/ops/redrive", {"project": "p", "dry_run": 0}),
    ("/v1/ops/redrive", {"ids": [2**63]}),
    ("/v1/ops/redrive", {"ids": ["1"]}),
    ("/v1/ops/release", {}),
    ("/v1/ops/release", {"project": "p", "event_type": "t"}),
    ("/v1/ops/release", {"project": "p", "drop": True}),
]


def test_what_is_refused_is_not_promised(served: Served) -> None:
    """What an operator is refused, the schema of the body does not allow."""
    operator = served.client("operator")
    document = schemathesis.openapi.from_url(f"{served.server.url}/openapi.json", timeout=60)
    taken = {each.ok().path: each.ok().body[0] for each in document.get_all_operations() if each.ok().body}
    for path, body in REFUSED:
        assert operator.post(path, body).status_code == 400, (path, body)
        schema = {**taken[path].definition["schema"], "components": document.raw_schema["components"]}
        assert not jsonschema_rs.Draft202012Validator(schema).is_valid(body), (path, body)


def test_a_cursor_that_is_none_is_refused_and_not_promised(served: Served) -> None:
    """On every list that has pages a cursor that no page named is refused, and the schema does not allow it."""
    operator = served.client("operator")
    phone = uuid4()
    operator.call("PUT", f"/v1/installations/{phone}", json={})
    paths = served.client().get("/openapi.json").json()["paths"]
    asked = {
        path: parameter["schema"]
        for path, methods in paths.items()
        for parameter in methods.get("get", {}).get("parameters", ())
        if parameter["name"] == "cursor"
    }
    assert len(asked) >= 3
    for path, schema in asked.items():
        address = path.format(installation_id=phone, event_id=1)
        for cursor in ("x", "", "-1", "1.5", "9" * 20, "²"):
            refused = operator.get(address, params={"cursor": cursor})
            assert refused.status_code == 400, (path, cursor, refused.text)
            assert "cursor" in refused.json()["detail"], (path, cursor)
            assert not jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(cursor), path


def _generate(operation: Any, do: Callable[[Any], object]) -> None:
    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=good | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def call(case: Any) -> None:
        if operation.path in QUICKLY and operation.method.upper() != "PUT":
            case.query = {**(case.query or {}), "wait_ms": 0}
        do(case)

    call()


TOKENS = {
    "expo": "ExponentPushToken[a]",
    "apns": "00ff",
    "webpush": subscription("https://updates.push.services.mozilla.com/wpush/v2/a"),
    "webhook": "billing",
}
"""Where any word will not do."""


def test_a_phone_s_push_services_are_those_that_are_taken(serve: Callable[..., Served], tmp_path: Path) -> None:
    """The document names the push services that a phone may be registered with, and not the one that is for news alone."""
    hooks = tmp_path / "webhooks.json"
    hooks.write_text(
        f'{{"billing": {{"url": "https://127.0.0.1/", "secret": "whsec_{b64encode(bytes(32)).decode()}"}}}}'
    )
    hooks.chmod(0o600)
    served = serve(webhooks_file=hooks)
    document = served.client().get("/openapi.json").json()
    named = document["components"]["schemas"]["InstallationBody"]["properties"]["provider"]["enum"]
    app = served.client("app")
    taken = {
        name: app.call("PUT", f"/v1/installations/{uuid4()}", json={"provider": name, "token": token}).status_code
        for name, token in ((each, TOKENS.get(each, "a")) for each in named)
    }
    assert set(taken.values()) == {201}, taken
