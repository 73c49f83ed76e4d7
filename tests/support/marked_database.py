"""A database in which every text is a word of its own that begins with `qq`: what a caller is told can be searched for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

import relevo
from relevo.app import App
from relevo.client import consent, values, verbs
from relevo.operators import words
from support.dashboard_events import FAILED, answer_request, deliveries_of, make_phone
from support.deliveries import mark_failed
from support.phones import fan_out

MARK = re.compile(r"qq[a-z]+")
OWNER, PLAN = "user-7", "qqplan"


@dataclass(frozen=True)
class World:
    """What was made, by the names that addresses use."""

    event: int
    other: int
    """An event for an attribute that the phone does not have."""
    tender: int
    delivery: int
    installation: UUID
    run: int


def fill(conn: psycopg.Connection[Any], app: App) -> World:
    """Write a text wherever an app, an operator, a push service or a feed may write one."""
    phone = make_phone(conn, owner=OWNER, attributes={"plan": PLAN})
    relevo.set_attributes(conn, {"city": "qqcity"}, owner=OWNER)
    verbs.set_preference(conn, phone, "mine", values.Preference(keywords=["qqkeyword"]))
    said = {"en": {"name": "qqcategory", "sentence": "qqsentence"}}
    consent.set_category(conn, "offers", texts=said)
    _words(app)
    event = {
        "type": "order.shipped", "key": "order-17", "title": "qqtitle", "body": "qqbody", "data": {"qqname": "qqdata"}, "category": "offers",
        "push": {"subtitle": "qqsubtitle"}, "batch": {"key": "b", "title": "qqbatchtitle", "body": "qqbatchbody"}, "audience": "owners",
        "owners": [OWNER], "where": {"plan": PLAN},
    }  # fmt: skip
    other = {
        "type": "offer",
        "key": "offer-1",
        "body": "qqonlybody",
        "audience": "attributes",
        "where": {"plan": "qqwanted"},
    }
    matched = {
        "type": "news",
        "key": "n",
        "title": "qqnews",
        "audience": "matching",
        "matching": {"text": "qqmatched qqkeyword"},
    }
    ids = [each.event_id for each in verbs.enqueue_json(conn, [event, other, matched])]
    fan_out(app)
    delivery = deliveries_of(conn, ids[0])[phone]
    mark_failed(conn, [delivery], code="MessageTooBig")
    conn.execute(
        "update relevo.notification_deliveries set last_error_message = 'qqanswer', last_attempt_at = now() where id = %s",
        [delivery],
    )
    answer_request(conn, [delivery], "refused")
    conn.execute(
        FAILED,
        {"id": delivery, "n": 1, "by": "dispatch", "became": "failed", "code": "MessageTooBig", "said": "qqattempt"},
    )
    return World(ids[0], ids[1], _tender(conn), delivery, phone, _trouble(conn, ids[0]))


def _words(app: App) -> None:
    """Save texts of a type, where the part that renders them is installed."""
    given = {"type": "worded", "texts": {"en": {"title": "qqpattern {name}"}}, "arguments": {"name": "qqsample"}}
    words.save(app.database, words.parse(given))


def _one(conn: psycopg.Connection[Any], statement: str, *given: object) -> Any:
    row = conn.execute(statement.encode(), given).fetchone()
    assert row is not None
    return row[0]


def _tender(conn: psycopg.Connection[Any]) -> int:
    """Store a tender with an event about it, and what could not be used of a feed."""
    tender = _one(
        conn,
        "insert into relevo.licitaciones (namespace, external_id, nombre, descripcion, organismo, sources, fingerprint, publicada_at) "
        "values ('chile', '1-2-LE26', 'qqnombre', 'qqdescripcion', 'qqorganismo', '{x}', 'x', now()) returning id",
    )
    conn.execute(
        "insert into relevo.source_state (source, cursor, last_outcome, last_detail, last_asked_at, last_ok_at, problems) "
        "values ('feed', '{}', 'rejected', 'qqdetail', now(), now() - interval '1 day', '{qqproblem}')"
    )
    conn.execute(
        "insert into relevo.ingest_rejects (source, place, external_id, reason) values ('feed', 'p', 'e', 'qqreject')"
    )
    return int(
        _one(
            conn,
            "insert into relevo.notification_events (event_type, event_key, title, body, audience, content_hash, licitacion_id) "
            "values ('new_licitacion', 't', 'qqtender', 'qqtenderbody', 'matching', '', %s) returning id",
            tender,
        )
    )


def _trouble(conn: psycopg.Connection[Any], event: int) -> int:
    """Have errors quote texts wherever errors are kept: a run's, a project's, an event's, a month's, the audit log's."""
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_by, breaker_since, breaker_reason, probe_at) "
        "values ('default', now(), 'open', 'request', now(), 'qqbreaker', now()) on conflict (project) do update set breaker = 'open', "
        "breaker_by = 'request', breaker_since = now(), breaker_reason = excluded.breaker_reason, probe_at = now()"
    )
    conn.execute(
        "insert into relevo.project_incidents (project, at, what, detail, events) values ('default', now(), 'breaker_opened', 'qqincident', %s)",
        [[event]],
    )
    conn.execute(
        "update relevo.notification_events set fanout_failures = 3, fanout_retry_at = now() + interval '1 hour', fanout_error = 'qqfanout', "
        "updated_at = now() where id = %s",
        [event],
    )
    conn.execute(
        "insert into relevo.audit_log (actor, face, action, target, result, outcome, error_message, finished_at) "
        "values ('ana', 'cli', 'send_test', %s, %s, 'failed', 'qqaudited', now())",
        [Jsonb({"title": "qqtarget"}), Jsonb({"body": "qqresult"})],
    )
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at, last_error) "
        "values ('push_requests', '2026-05-01', 'sealed', 'y', 1000, now(), 'qqarchive')"
    )
    conn.execute(
        "insert into relevo.troubles (kind, name, error, retry_at) values ('lane', 'default', 'qqtrouble', now() + interval '1 hour')"
    )
    return int(
        _one(
            conn,
            "insert into relevo.worker_runs (cycle, source, trigger, worker_id, started_at, finished_at, outcome, error_message, counts) "
            "values ('fanout', '', 'schedule', 'w', now(), now(), 'failed', 'ValueError: qqrun', '{}') returning id",
        )
    )
