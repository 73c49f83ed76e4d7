"""Two projects whose owners, keys, names and settings are equal; what is the second one's carries marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners
from support.http_server import Client, Served, fan_out

MARKS = ("Quokka", "bbbbbbbb", "Pacific/Chatham", '"most":777', "7770000", "7775000", "fr-QK")
"""What stands in data of the second project alone: texts, ids of phones, zone, cap, ids of events and deliveries, and locale."""
SNAPSHOT = """
select 'events', to_jsonb(e) - array['updated_at'] from relevo.notification_events e where e.project = 'bank'
union all select 'phones', to_jsonb(i) from relevo.device_installations i where i.project = 'bank'
union all select 'secrets', to_jsonb(s) from relevo.device_secrets s join relevo.device_installations i using (installation_id) where i.project = 'bank'
union all select 'preferences', to_jsonb(p) from relevo.notification_preferences p join relevo.device_installations i using (installation_id) where i.project = 'bank'
union all select 'deliveries', to_jsonb(d) from relevo.notification_deliveries d join relevo.device_installations i using (installation_id) where i.project = 'bank'
union all select 'owners', to_jsonb(o) from relevo.event_owners o join relevo.notification_events e on e.id = o.event_id where e.project = 'bank'
union all select 'completions', to_jsonb(c) from relevo.event_completions c join relevo.notification_events e on e.id = c.event_id where e.project = 'bank'
union all select 'inboxes', to_jsonb(b) from relevo.inboxes b where b.project = 'bank'
union all select 'marks', to_jsonb(m) from relevo.inbox_marks m join relevo.inboxes b on b.id = m.inbox_id where b.project = 'bank'
union all select 'rules', to_jsonb(r) from relevo.owner_rules r where r.project = 'bank'
union all select 'consents', to_jsonb(c) from relevo.consents c where c.project = 'bank'
union all select 'hours', to_jsonb(d) from relevo.quiet_defaults d where d.project = 'bank'
union all select 'caps', to_jsonb(c) from relevo.caps c where c.project = 'bank'
union all select 'subscriptions', to_jsonb(s) from relevo.news_subscriptions s where s.project = 'bank'
union all select 'cursors', to_jsonb(c) from relevo.news_cursors c join relevo.news_subscriptions s on s.name = c.subscription where s.project = 'bank'
order by 1, 2
"""


@dataclass(frozen=True)
class Side:
    """What one project has: its callers and the ids of its data."""

    project: str
    app: Client
    viewer: Client
    operator: Client
    phone: UUID
    secret: str
    event: int
    delivery: int


def plant(served: Served, conn: psycopg.Connection[Any]) -> tuple[Side, Side]:
    """Make the projects `shop` and `bank` with equal names, and events without project beside them."""
    with conn.transaction():
        conn.execute("select relevo.set_category(%s)", [Jsonb({"category": "offers", "rule": "on"})])
        # far apart, so that an id of the second one is found wherever it stands
        conn.execute("alter sequence relevo.notification_events_id_seq restart with 1000")
    shop = _side(served, conn, "shop", "a", "Wombat", {"zone": "America/Lima", "most": 5, "locale": "es-CL"})
    conn.execute("alter sequence relevo.notification_events_id_seq restart with 777000001")
    conn.execute("alter sequence relevo.delivery_ids restart with 777500001")
    bank = _side(served, conn, "bank", "b", "Quokka", {"zone": "Pacific/Chatham", "most": 777, "locale": "fr-QK"})
    conn.execute("alter sequence relevo.notification_events_id_seq restart with 2000")
    conn.execute("alter sequence relevo.delivery_ids restart with 2000")
    with conn.transaction():
        relevo.enqueue(conn, Event("t", "k", "for default", audience=Owners("ana")))
    fan_out(served)
    return shop, bank


def _side(
    served: Served, conn: psycopg.Connection[Any], project: str, digit: str, word: str, given: dict[str, Any]
) -> Side:
    app, viewer, operator = (served.client(role, project=project) for role in ("app", "viewer", "operator"))
    phone = UUID(f"{digit * 8}-0000-4000-8000-00000000000{1 if digit == 'a' else 2}")
    answer = app.call(
        "PUT",
        f"/v1/installations/{phone}",
        json={
            "token": f"ExponentPushToken[{word}]",
            "owner": "ana",
            "locale": given["locale"],
            "timezone": given["zone"],
            "opt_outs": [word],
        },
    )
    assert answer.status_code == 201, answer.text
    secret = answer.json()["secret"]
    event = app.post("/v1/events", {
        "type": "t", "key": "k", "title": f"{word} one", "body": word, "data": {"x": word}, "audience": "owners", "owners": ["ana"]
    }).json()["event_id"]  # fmt: skip
    later = {
        "type": "t",
        "key": "later",
        "title": f"{word} later",
        "audience": "everyone",
        "scheduled_at": "2199-01-01T00:00:00Z",
    }
    assert app.post("/v1/events", later).status_code == 201
    missed = {"type": "t", "key": "missed", "title": f"{word} missed", "audience": "owners", "owners": ["nobody"]}
    assert app.post("/v1/events", missed).status_code == 201
    fan_out(served)
    for method, path, body in (
        ("POST", "/v1/owners/choices", {"owner": "ana", "category": "offers", "wanted": False, "words": word}),
        ("POST", "/v1/owners/quiet", {"owner": "ana", "windows": ["23:00-23:30"], "zone": given["zone"]}),
        ("POST", "/v1/owners/attributes", {"owner": "ana", "attributes": {"zone": given["zone"]}}),
        ("PUT", "/v1/quiet", {"windows": ["22:00-22:30"], "zone": given["zone"]}),
        ("PUT", "/v1/caps", {"per": "week", "most": given["most"]}),
        ("PUT", "/v1/news/feed", {"kinds": ["installation.unregistered"]}),
        ("PUT", f"/v1/installations/{phone}/preferences/{word}", {"topics": [word]}),
        ("POST", f"/v1/inbox/{event}/seen", {"owner": "ana"}),
    ):
        answer = app.call(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
    with conn.transaction():
        gone = relevo.register(conn, Installation(f"ExponentPushToken[{word}gone]", owner=word, project=project))
        relevo.unregister(conn, gone)
    served.app.runner.run(served.app.registry["reaper"], "manual")
    [delivery] = conn.execute(
        "select id from relevo.notification_deliveries where notification_event_id = %s", [event]
    ).fetchone()
    return Side(project, app, viewer, operator, phone, secret, event, delivery)
