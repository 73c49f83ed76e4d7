"""A database in which everything that others may write is hostile: what pages show must do no harm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from relevo.app import App
from relevo.client import values, verbs
from relevo.operators import actions, test_pushes
from support.dashboard_person import NASTY
from support.deliveries import mark_failed, mark_sent
from support.phones import add_phones, fan_out


def nasty(longest: int) -> str:
    """Return hostile text of the greatest length that fits."""
    return NASTY[:longest]


@dataclass
class World:
    """What `fill` made, by the names that addresses of pages use."""

    event: int = 0
    tender: int = 0
    delivery: int = 0
    installation: UUID = field(default_factory=uuid4)
    owner: str = nasty(200)
    token: str = ""
    external_id: str = "<b>code</b>"
    """Of several tenders, so that a search shows them."""
    run: int = 0
    trial: int = 0


def fill(conn: psycopg.Connection[Any], app: App) -> World:
    """Write hostile text wherever a feed, an app, a phone, a push service or an operator may write it."""
    world = World(token=f"ExponentPushToken[{uuid4().hex}]")
    given = {"token": world.token, "owner": world.owner, "project": nasty(200), "opt_outs": [nasty(100)]}
    world.installation = _one(conn, "select relevo.register_installation(%s)", Jsonb(given))
    asked = values.TenderPreference(keywords=["<script>", "x" * 100], region=nasty(200), topics=[nasty(100)])
    verbs.set_preference(conn, world.installation, nasty(100), asked)
    phones = add_phones(conn, 5)
    _tender(conn, world)
    event = values.Event(
        nasty(100), nasty(300), nasty(500), nasty(2000), audience=[world.installation, *phones], category="x"
    )
    world.event = verbs.enqueue(conn, event).event_id
    fan_out(app)
    _deliver(conn, world)
    _run(conn, world)
    _feed(conn)
    tried = test_pushes.make(str(uuid4()), [world.installation], nasty(500), nasty(2000), {})
    world.trial = test_pushes.send(app.database, tried, [world.installation])
    actions.pause(app.database, "dispatch", nasty(300))
    return world


def _one(conn: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    row = conn.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]


def _tender(conn: psycopg.Connection[Any], world: World) -> None:
    """Store a tender, as ingest does, and an event that tells of it."""
    tender = _one(
        conn,
        "insert into relevo.licitaciones (namespace, external_id, nombre, organismo, region, sources, fingerprint, publicada_at, url) "
        "values ('chile', %s, %s, %s, %s, array[%s], 'x', now(), 'javascript:alert(1)') returning id",
        *(nasty(300), nasty(2000), nasty(500), nasty(200), nasty(100)),
    )
    conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint) "
        "select 'chile ' || n, %s, %s, '{x}', 'x' from generate_series(1, 2) n",
        [world.external_id, nasty(2000)],
    )
    world.tender = _one(
        conn,
        "insert into relevo.notification_events (event_type, event_key, title, body, audience, content_hash, licitacion_id) "
        "values ('new_licitacion', %s, %s, %s, 'matching', '', %s) returning id",
        *(nasty(300), nasty(500), nasty(2000), tender),
    )
    conn.execute(
        "insert into relevo.licitacion_registry (namespace, external_id, source, announced) values ('chile', %s, %s, true)",
        [nasty(300), nasty(100)],
    )


def _deliver(conn: psycopg.Connection[Any], world: World) -> None:
    """Have one delivery fail in a request, and others sent, as a push service that speaks hostile words would."""
    found = (
        "select id, installation_id from relevo.notification_deliveries where notification_event_id = %s order by id"
    )
    ids = [row[0] for row in conn.execute(found, [world.event]).fetchall()]
    world.delivery = _one(
        conn,
        "select id from relevo.notification_deliveries where notification_event_id = %s and installation_id = %s",
        *(world.event, world.installation),
    )
    others = [each for each in ids if each != world.delivery]
    mark_failed(conn, [world.delivery], code=nasty(100))
    mark_sent(conn, others[:2], ticket=nasty(200))
    conn.execute(
        "update relevo.notification_deliveries set last_error_message = %s, provider_ticket_id = %s, last_attempt_at = now() where id = %s",
        [nasty(500), nasty(200), world.delivery],
    )
    conn.execute(
        "insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids) "
        "select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), %s, %s, now(), now(), %s, array[d.event_day], array[d.id] "
        "  from relevo.notification_deliveries d where d.id = %s",
        [nasty(100), nasty(200), nasty(40), world.delivery],
    )


def _run(conn: psycopg.Connection[Any], world: World) -> None:
    """Have a run fail with hostile words, a project break down with some, and an operator named so."""
    world.run = _one(
        conn,
        "insert into relevo.worker_runs (cycle, source, trigger, worker_id, started_at, finished_at, outcome, error_message, counts) "
        "values ('dispatch', '', 'schedule', %s, now(), now(), 'failed', %s, %s) returning id",
        *(nasty(100), nasty(500), Jsonb({nasty(100): 1})),
    )
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_by, breaker_since, breaker_reason, probe_at) "
        "values (%s, now(), 'open', 'request', now(), %s, now()) on conflict (project) do update set breaker = 'open', breaker_by = 'request', "
        "breaker_since = now(), breaker_reason = excluded.breaker_reason, probe_at = now()",
        [nasty(200), nasty(300)],
    )
    conn.execute(
        "insert into relevo.audit_log (actor, face, action, target, outcome, finished_at) "
        "values (%s, 'cli', 'pause', %s, 'ok', now())",
        [nasty(200), Jsonb({"reason": nasty(300)})],
    )


def _feed(conn: psycopg.Connection[Any]) -> None:
    """Have a source speak hostile words, offer what cannot be used, and a month fail to be archived with some."""
    conn.execute(
        "insert into relevo.source_state (source, cursor, last_outcome, last_detail, last_asked_at, last_ok_at, problems) "
        "values (%s, %s, 'rejected', %s, now(), now(), array[%s])",
        [nasty(100), Jsonb({nasty(100): nasty(300)}), nasty(500), nasty(300)],
    )
    conn.execute(
        "insert into relevo.ingest_rejects (source, place, external_id, reason) values (%s, %s, %s, %s)",
        [nasty(100), nasty(1000), nasty(300), nasty(500)],
    )
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at, last_error) "
        "values ('push_requests', '2026-05-01', 'sealed', 'y', 1000, now(), %s)",
        [nasty(500)],
    )
