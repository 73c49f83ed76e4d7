"""The short checks let through only what the careful ones do not refuse: events and installations by chance, asked of both."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import chance
import relevo
from relevo import Event, Installation, Owners
from relevo.client import verbs
from relevo.core.errors import InvalidInputError
from soak import cases

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
    events = [chance.event(by_chance, phones, ["ana", "bea"]) for _ in range(EVENTS)]
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
        relevo.Matching(rubros=["43"]),
        relevo.Matching(moneda="clp"),
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
