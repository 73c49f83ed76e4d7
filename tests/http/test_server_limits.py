"""What a caller cannot do: take all connections, send too much, learn a secret; and what a taken port means."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import requests
import structlog
from structlog.testing import capture_logs

from relevo.access import api_tokens, sessions
from relevo.app import App
from relevo.http import server
from relevo.http.admission import RateLimiter
from relevo.operators import fleet
from relevo.sandbox import Sandbox
from support.http_server import EVENT, Served, free_port
from support.processes import eventually


def test_a_pool_that_is_dry_answers_503(serve: Callable[..., Served], conn: psycopg.Connection[Any], dsn: str) -> None:
    """While all connections are in use, others are told when to come back, and alive is alive; then all is well.

    It is ready all the while: were it not, a load balancer would take one replica after the other out.
    """
    served = serve(http_pool_size=1, http_pool_wait_ms=50)
    viewer, another = served.client("viewer"), served.client("viewer")  # requests with one token are verified together
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as first:
        other.execute("lock table relevo.api_tokens in access exclusive mode")
        held = first.submit(viewer.get, "/v1/ops/audit")
        waiting = (
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'relevo http%'"
        )
        eventually(lambda: conn.execute(waiting).fetchone(), "one request has the only connection")
        refused = served.client().get("/v1/ops/audit", headers={"Authorization": f"Bearer {another.token}"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["type"] == "urn:relevo:busy"
        assert served.client().get("/health/live").status_code == 200
        ready = served.client().get("/health/ready")
        assert (ready.status_code, ready.json()["checks"]["database"]) == (200, "ok")
        other.rollback()
        assert held.result().status_code == 200
    assert viewer.get("/v1/ops/audit").status_code == 200


def test_a_statement_that_is_blocked_is_given_up(serve: Callable[..., Served], dsn: str) -> None:
    """Whoever waits for another's lock is told so when DATABASE_LOCK_TIMEOUT_MS is over, reading and writing alike."""
    served = serve(database_lock_timeout_ms=100)
    operator = served.client("operator")
    pause = ("/v1/ops/cycles/dispatch/pause", {"reason": "test"})
    assert operator.post(*pause).status_code == 200
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.cycle_state for update")
        refused = [operator.post(*pause)]
        other.execute("lock table relevo.worker_runs in access exclusive mode")
        refused.append(operator.get("/v1/ops/stats"))
    assert [(each.status_code, each.json()["type"]) for each in refused] == [(503, "urn:relevo:busy")] * 2
    assert [each.headers["Retry-After"] for each in refused] == ["1", "1"]
    assert operator.post(*pause).status_code == operator.get("/v1/ops/stats").status_code == 200


def test_a_body_is_bounded(serve: Callable[..., Served]) -> None:
    """A body that is too large is refused, whether its length is announced or comes in chunks."""
    served = serve(http_max_body_bytes=2_000)
    app = served.client("app")
    announced = app.post("/v1/events", {**EVENT, "body": "x" * 3_000})
    assert (announced.status_code, announced.json()["type"]) == (413, "urn:relevo:content-too-large")

    def pieces() -> Iterator[bytes]:
        yield b'{"type": "'
        yield b"x" * 3_000

    headers = {"Content-Type": "application/json"}
    assert app.call("POST", "/v1/events", data=pieces(), headers=headers).status_code == 413
    assert app.post("/v1/events", EVENT).status_code == 201


def test_what_is_no_json_is_refused(served: Served) -> None:
    """Broken JSON, not a number and the wrong kind of value are 400 problems."""
    app = served.client("app")
    headers = {"Content-Type": "application/json"}
    for body in (b"{", b"[]", b"\xff", b'{"type": NaN}', b'{"type": 1e999, "audience": "everyone"}'):
        answer = app.call("POST", "/v1/events", data=body, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), body
    assert app.get("/v1/ops/audit?action=%00").status_code == 403
    assert served.client("viewer").get("/v1/ops/audit?action=%00").status_code == 400


def test_no_secret_leaves(served: Served) -> None:
    """Neither an answer nor a log line shows a token, right or wrong."""
    client = served.client("app")
    assert client.token
    secret = client.token.split("_", 2)[2]  # which may hold underscores itself
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        answers = [
            client.get(f"/v1/events/{client.token}"),
            client.get("/v1/ops/audit"),
            client.post("/v1/events", {**EVENT, "lane": client.token}),
            client.post("/v1/events", {**EVENT, client.token: 1}),
        ]
        eventually(lambda: len([line for line in lines if line["event"] == "http_request"]) >= 2, "changes are told")
    assert not [each.text for each in answers if secret in each.text or secret in str(each.headers)]
    assert secret not in str(lines)
    told = {line["request_id"] for line in lines if line["event"] == "http_request"}
    assert {each.headers["x-request-id"] for each in answers[2:]} <= told
    reads = [line for line in lines if line["event"] == "http_request" and line["method"] == "GET"]
    assert {line["log_level"] for line in reads} <= {"debug"}, "reads are told to who looks for them alone"


def test_the_rate_is_per_caller() -> None:
    """Twice a second's worth at once, then as the rate says; one caller's haste is not another's."""
    now = [0.0]
    limiter = RateLimiter(10, clock=lambda: now[0])
    assert [limiter.spend("a") for _ in range(20)] == [0] * 20
    assert limiter.spend("a") == 1, "seconds to wait"
    assert limiter.spend("b") == 0
    now[0] += 0.1
    assert [limiter.spend("a") for _ in range(2)] == [0, 1]
    now[0] += 0.4
    assert limiter.spend("a", 5) == 1, "too heavy for what is left"
    assert limiter.spend("a", 4) == 0
    now[0] += 60
    assert limiter.spend("a", 1_000) == 0, "what weighs more than all takes all"
    assert limiter.spend("a", 1_000) == 2


def test_a_taken_port_is_a_problem_and_no_end(build: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process goes on, health names port and remedy, and once the port is free it is served."""
    monkeypatch.setattr(server, "_AGAIN_S", 0.05)
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        built = build(http_port=port)
        serving = server.HttpServer(built, scheduled=False)
        serving.start()
        try:
            eventually(lambda: built.worker.http and "problem" in built.worker.http, "the port is taken")
            with built.database.transaction() as connection:
                built.worker.beat(connection)
            [problem] = [each for each in fleet.status(built.database, built.settings).problems if "HTTP" in each]
            assert f"port {port}" in problem
            assert "HTTP_PORT" in problem
            squatter.close()
            assert serving.wait_until_serving(60)
            assert serving.url.endswith(str(port))
        finally:
            serving.stop()
    with built.database.transaction() as connection:
        built.worker.beat(connection)
    assert not [each for each in fleet.status(built.database, built.settings).problems if "HTTP" in each]


def test_metrics_may_have_a_port_of_their_own(serve: Callable[..., Served]) -> None:
    """On METRICS_PORT they need no token, and nothing else is served there."""
    port = free_port()
    served = serve(metrics_port=port)
    own = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60)
    assert own.status_code == 200
    assert requests.get(f"http://127.0.0.1:{port}/v1/ops/audit", timeout=60).status_code == 404
    assert served.client().get("/metrics").status_code == 401


@pytest.mark.parametrize(
    ("origins", "allowed"), [({}, None), ({"http_cors_origins": "https://app.example"}, "https://app.example")]
)
def test_pages_of_others_may_call_only_if_named(
    serve: Callable[..., Served], origins: dict[str, str], allowed: str | None
) -> None:
    """Without HTTP_CORS_ORIGINS no page may; with it, those that are named."""
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    answer = serve(**origins).client().call("OPTIONS", "/v1/ops/stats", headers=asked)
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_the_page_asks_nobody_else(served: Served) -> None:
    """/docs names every route, has no script, loads nothing from anywhere, and its links hold below a proxy's path, too."""
    client = served.client()
    assert client.get("/").headers["location"] == "/dashboard"
    page, document = client.get("/docs"), client.get("/openapi.json").json()
    assert [path for path in document["paths"] if path not in page.text] == []
    assert "<script" not in page.text
    assert "src=" not in page.text
    assert 'href="/' not in page.text
    assert "//" not in page.text.replace("<!doctype", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_request_that_is_cut_short_harms_nobody(served: Served) -> None:
    """A caller that leaves in the middle of its body is forgotten, and the next one is served."""
    app = served.client("app")
    where = urlsplit(served.server.url)
    assert where.hostname
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    connection.putrequest("POST", "/v1/events")
    connection.putheader("Authorization", f"Bearer {app.token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "500")
    connection.endheaders()
    connection.send(b'{"type":')
    connection.close()
    assert app.post("/v1/events", EVENT).status_code == 201


def test_calls_while_dispatch_runs(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """Waiters and requests beside a dispatch that sends: no error, and everybody who waited is told the end."""
    with Sandbox(rate_per_s=0) as sandbox:
        served = serve(expo_base_url=sandbox.url, push_rate_per_second=0)
        conn.execute(
            "insert into relevo.device_installations (token) select 'ExponentPushToken[p' || n || ']' from generate_series(1, 600) n"
        )
        operator, app = served.client("operator"), served.client("app")
        event_id = app.post("/v1/events", EVENT).json()["event_id"]
        with ThreadPoolExecutor(48) as callers:
            waiting = [
                callers.submit(served.client("viewer").get, f"/v1/events/{event_id}?wait_ms=30000") for _ in range(40)
            ]
            running = callers.submit(
                lambda: [operator.post(f"/v1/ops/cycles/{name}/run") for name in ("fanout", "dispatch")]
            )
            asked = [
                callers.submit(
                    served.client("app").post,
                    "/v1/events",
                    {**EVENT, "key": f"k-{n}", "audience": "owners", "owners": ["x"]},
                )
                for n in range(60)
            ]
            codes = [each.result().status_code for each in [*waiting, *asked]]
            assert {each.status_code for each in running.result()} == {200}
        assert codes == [200] * 40 + [201] * 60


def test_good_tokens_do_not_pay_for_strangers(serve: Callable[..., Served]) -> None:
    """Where strangers have used up the rate of an address, a token, a session or a phone nobody knew is let in."""
    served = serve(http_rate_per_second=1, http_open_registration="default")
    phone = uuid4()
    made = served.client("app").call("PUT", f"/v1/installations/{phone}", json={})
    secret = {"Authorization": f"Bearer {made.json()['secret']}"}
    served.server.api.state.callers._phones.clear()  # type: ignore[union-attr]
    session = sessions.begin(served.app.database, api_tokens.verify(served.app.database, served.client("viewer").token))  # type: ignore[arg-type]
    stranger = served.client()

    def spend_all() -> None:
        eventually(lambda: stranger.get("/v1/ops/audit").status_code == 429, "the rate is used up")

    for call in (
        lambda: served.client("viewer").get("/v1/ops/audit"),
        lambda: served.client("app").post("/v1/events", EVENT | {"audience": "owners", "owners": ["x"]}),
        lambda: stranger.get(f"/v1/installations/{phone}/preferences", headers=secret),
        lambda: stranger.get("/dashboard", headers={"Cookie": f"relevo_session={session}"}),
    ):
        spend_all()
        assert call().status_code in (200, 201)
    spend_all()
    assert stranger.get("/v1/ops/audit").status_code == 429


def test_a_token_does_not_take_all_places_to_wait(serve: Callable[..., Served]) -> None:
    """A token that waits often is refused at half of all places; once all are taken, another still finds one."""
    served = serve(http_max_connections=40, http_rate_per_second=0)
    waiters = served.server.api.state.waiters  # type: ignore[union-attr]
    event_id = (
        served.client("app").post("/v1/events", EVENT | {"audience": "owners", "owners": ["x"]}).json()["event_id"]
    )
    path = f"/v1/events/{event_id}?wait_ms=30000"
    first, second, third = (served.client("viewer").token for _ in range(3))

    def wait(token: str | None) -> int:
        with requests.Session() as session:
            session.trust_env = False
            headers = {"Authorization": f"Bearer {token}"}
            return session.get(served.server.url + path, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(30) as callers:
        asked = {callers.submit(wait, first) for _ in range(10)}
        eventually(lambda: waiters.places.count == 10, "one token has its share")
        assert wait(first) == 503
        asked |= {callers.submit(wait, second) for _ in range(10)}
        eventually(lambda: waiters.places.count == 20, "all places are taken")
        last = callers.submit(wait, third)
        eventually(lambda: any(each.done() for each in asked), "somebody gave up a place")
        assert not last.done()
        waiters.close()
        assert {each.result() for each in [*asked, last]} == {202}
