"""The short checks let through only what the careful ones do not refuse: events and installations by chance, asked of both."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners
from relevo.client import verbs
from relevo.core.errors import InvalidInputError
from support import random_events
from support.soak import cases

EVENTS = cases(600, whole=20_000)
REFUSAL = """
create function pg_temp.refusal(event jsonb) returns text language plpgsql as $$
begin
  perform relevo.check_event(event);
  return null;
exception when invalid_parameter_value then
  return sqlerrm;
end $$
"""
NONE_IS_PLAIN = "create or replace function relevo.is_plain_event(event jsonb) returns boolean language sql immutable as 'select false'"


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> list[UUID]:
    """Return phones of two owners."""
    return relevo.register_many(
        conn, [Installation(f"ExponentPushToken[{n}]", owner=owner) for n, owner in enumerate(("ana", "bea", "ana"))]
    )


def test_a_plain_event_is_not_refused(conn, phones) -> None:
    """Whatever fields an event has: if is_plain_event lets it through, check_event without it refuses nothing of it."""
    by_chance = random.Random(1)
    events = [random_events.event(by_chance, phones, ["ana", "bea"]) for _ in range(EVENTS)]
    asked = "select {} from jsonb_array_elements(%s) with ordinality as e(one, place) order by place"
    plain = [row[0] for row in conn.execute(asked.format("relevo.is_plain_event(one)"), [Jsonb(events)])]
    with conn.transaction(force_rollback=True):
        conn.execute(NONE_IS_PLAIN)
        conn.execute(REFUSAL)
        refused = [row[0] for row in conn.execute(asked.format("pg_temp.refusal(one)"), [Jsonb(events)])]
    for event, waved, refusal in zip(events, plain, refused, strict=True):
        assert not waved or refusal is None, (event, refusal)
    assert sum(map(bool, plain)) > EVENTS / 2
    assert len({*refused}) > 25, "what is refused is not always the same"


VALUES: dict[str, tuple[Any, ...]] = {
    "type": ("chat", "ñ" * 100, "x" * 101, "", " ", "\t", "relevo.x", "a\0", 7, None),
    "key": ("k", " k ", "x" * 300, "x" * 301, "  ", "\ud800", b"k", True),
    "title": ("Ana", "", "\u200b", "\n", "x" * 500, "x" * 501, "\0", None, ["x"]),
    "body": ("", "and more", "\n", "x" * 2000, "x" * 2001, "ñ\ud800", 7),
    "data": ({}, {"a": 1}, {"a": "x" * 3500}, {"a": "\0"}, {1: "x"}, {"a": float("inf")}, {"a": [{}]}, [], None),
    "push": ({}, {"sound": "default"}, {"a": 1}, None, []),
    "audience": (
        "everyone",
        "nobody",
        [],
        [UUID(int=1)],
        (UUID(int=1), UUID(int=2)),
        ["x"],
        [None],
        Owners("ana"),
        Owners(""),
        Owners("x" * 201),
        Owners("a\0"),
        Owners(),
        relevo.TenderMatching(rubros=["43"]),
        relevo.TenderMatching(moneda="clp"),
        7,
    ),
    "topics": ((), [], ("a",), "a"),
    "category": (None, "chats", ""),
    "lane": (None, "urgent", "fast"),
    "ttl_s": (None, 60, 0),
    "scheduled_at": (None, datetime.now(UTC), datetime(2030, 1, 1), "soon"),  # noqa: DTZ001
    "project": (None, "shop", ""),
}


def as_read(event: Event) -> object:
    """Return what the verbs make of an event, or the complaint."""
    try:
        return verbs._event(event)
    except InvalidInputError as error:
        return str(error), error.hint


def test_python_reads_a_plain_event_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fields a relevo.Event has: with its is_plain_event and without it is read into the same, or refused in the same words."""
    by_chance, plainly = random.Random(2), 0
    usual = {"type": "chat", "key": "k", "title": "Ana", "audience": [UUID(int=1)]}
    events = []
    for _ in range(EVENTS):
        names = by_chance.sample(sorted(VALUES), by_chance.choice((0, 1, 1, 2, 3)))
        events.append(Event(**(usual | {name: by_chance.choice(VALUES[name]) for name in names})))
    read = [as_read(event) for event in events]
    looked = verbs.is_plain_event

    def looks(event: Any) -> bool:
        nonlocal plainly
        plainly += looked(event)
        return False

    monkeypatch.setattr(verbs, "is_plain_event", looks)
    for event, before in zip(events, read, strict=True):
        assert as_read(event) == before, event
    assert EVENTS / 5 < plainly < EVENTS, "some of both"


PHONES = cases(150, whole=1_500)
HEX = "0a" * 32
EXPO = ("ExponentPushToken[known]", "ExpoPushToken[new]", "ExponentPushToken[acme]")
INSTALLATIONS: dict[str, tuple[Any, ...]] = {
    "token": (*EXPO, *EXPO, "fcm:token", HEX, HEX.upper(), "ExponentPushToken[a b]", str(UUID(int=7)), "", 7, None),
    "provider": ("expo", "fcm", "apns", "acme", "nope", None, 7),
    "project": ("default", "shop", "a:b", "x" * 101, "x" * 201, "", None),
    "platform": ("ios", "android", "web", "unknown", "tv", None),
    "locale": ("es-CL", "x" * 36, "", None),
    "owner": ("ana", "bea", "ñ" * 200, "x" * 201, "", 7, None),
    "push_capable": (True, False, "true", None),
    "permission": ("granted", "denied", "maybe", None),
    "opt_outs": (["tips"], None, "tips"),
    "environment": ("sandbox", "production"),
    "timezone": ("America/Santiago", "Nowhere"),
    "colour": ("red",),
}
USUAL = ("provider", "project", "platform", "locale", "owner", "push_capable", "permission")
PAIRED = {"fcm": "fcm:token", "apns": HEX}
REGISTERED = """
select jsonb_agg(i.shown order by i.shown::text)
  from (select to_jsonb(i) - array['seq', 'inbox_id', case when i.installation_id <> all (%s::uuid[]) then 'installation_id' end] as shown
          from relevo.device_installations i) i
"""


def installation(by_chance: random.Random, ids: list[str]) -> dict[str, Any]:
    """Return an installation as the SQL functions take it, most of them usual."""
    made: dict[str, Any] = {"token": by_chance.choice(EXPO), "owner": by_chance.choice(("ana", "bea"))}
    for name in by_chance.sample(USUAL, by_chance.randrange(3)):
        made[name] = by_chance.choice(INSTALLATIONS[name][:3])
    if "provider" in made:
        made |= {"token": PAIRED.get(made["provider"], made["token"]), "project": "default"}
    if by_chance.random() < 1 / 4:
        made["installation_id"] = by_chance.choice(ids)
    if by_chance.random() < 1 / 3:
        for name in by_chance.sample(sorted(INSTALLATIONS), by_chance.choice((1, 1, 2))):
            made[name] = by_chance.choice(INSTALLATIONS[name])
    return made


def registered(conn: psycopg.Connection[Any], given: list[dict[str, Any]], known: list[UUID]) -> Any:
    """Register installations, and undo that; return all that are there, with the ids of known ones, or the complaint."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute("select relevo.register_many(%s)", [Jsonb(given)])
            row = conn.execute(REGISTERED, [known]).fetchone()
            return row and row[0]
    except psycopg.errors.InvalidParameterValue as error:
        return str(error.diag.message_primary)


def test_a_plain_installation_is_registered_as_any_other(conn) -> None:
    """Whatever phones register, known or not, of our push services or an app's own: with is_plain_installation and without it the same is written."""
    by_chance, seen = random.Random(4), {True: 0, False: 0}
    conn.execute("insert into relevo.providers (provider) values ('acme')")
    known = [
        {"token": EXPO[0], "owner": "ana"},
        {"token": "fcm:known", "owner": "bea", "provider": "fcm", "platform": "android"},
        {"token": "ff" * 32, "provider": "apns"},
        {"token": EXPO[2], "owner": "ana", "provider": "acme"},
    ]
    ids = ids_of(conn, known)
    some = [*map(str, ids), str(ids[0]).upper(), str(UUID(int=9)), "me"]
    rounds = [[installation(by_chance, some) for _ in range(by_chance.choice((1, 1, 3)))] for _ in range(PHONES)]
    with conn.transaction():
        written = [registered(conn, given, ids) for given in rounds]
        conn.execute(
            "create or replace function relevo.is_plain_installation(installation jsonb) returns boolean language sql immutable as 'select false'"
        )
        for given, before in zip(rounds, written, strict=True):
            after = registered(conn, given, ids)
            seen[isinstance(after, str)] += 1
            if re.search("token must be an (FCM|APNs)", str(after)):  # of a known one the short check knows no provider
                assert isinstance(before, str), given
            else:
                assert after == before, given
        raise psycopg.Rollback
    assert min(seen.values()) > PHONES / 10


def ids_of(conn: psycopg.Connection[Any], given: list[dict[str, Any]]) -> list[UUID]:
    """Register installations and return their ids."""
    row = conn.execute("select relevo.register_many(%s)", [Jsonb(given)]).fetchone()
    assert row is not None
    return list(row[0])
