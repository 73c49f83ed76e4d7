"""What requests that share writes are told, and what they leave, equals what they get one by one: random cases of both."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.access.api_tokens import Token
from relevo.access.phones import Proof
from relevo.app import App
from relevo.client.values import Enqueued
from relevo.core.errors import RelevoError
from relevo.database.pool import Database
from relevo.http.database_threads import DatabaseThreads
from relevo.http.shared_writes import SharedWrites
from relevo.verbs import events
from relevo.verbs.callers import Caller
from support.http_server import phone
from support.soak import cases

CALLERS = (Token("a", "an app", "app"), Token("s", "shop", "app", "shop"), Token("b", "bank", "app", "bank"))
SIDES = ("one", "two")
"""Marks of equal length in front of each type: of events handed in one by one, and of those that share writes."""
ROUNDS, TOGETHER = cases(15, whole=400), 25
Case = tuple[Token, dict[str, Any]]
TABLES = {
    "events": """select n.event_type, n.event_key, n.project, n.title, n.body, n.data, n.push, n.audience, n.category, n.lane, n.at_most_once,
                        n.match_topics, n.match_region, n.collapse, n.state, n.deadline_at - n.scheduled_at, n.scheduled_at > now() + interval '1 day'
                   from relevo.notification_events n""",
    "phones": "select n.event_type, n.event_key, n.project, a.installation_id, a.inbox_id from relevo.event_audience a join relevo.notification_events n on n.id = a.event_id",
    "owners": "select n.event_type, n.event_key, n.project, o.owner from relevo.event_owners o join relevo.notification_events n on n.id = o.event_id",
}

GOOD: list[dict[str, Any]] = [
    {},
    {"title": "Other", "lane": "urgent"},
    {"body": "More", "data": {"a": [1, "ñ", None]}, "push": {"sound": "default", "badge": "unread"}},
    {"audience": "owners", "owners": ["ana", "ana", "bob"], "category": "offers"},
    {"audience": "matching", "matching": {"region": "Maule"}, "topics": ["news", "news"]},
    {"scheduled_at": "2100-01-01T00:00:00Z", "ttl_s": 60, "collapse": "c"},
    {"at_most_once": True, "lane": "bulk", "deadline_at": "2100-01-01T00:00:00Z"},
]
BAD: list[dict[str, Any]] = [
    {"title": " "},
    {"scheduled_at": "soon"},
    {"deadline_at": "2001-01-01T00:00:00Z"},
    {"data": {"a": float("inf")}},
    {"title": "x\0y"},
    {"audience": "installations", "installations": ["x"]},
    {"colour": "red"},
    {"type": "relevo.news"},
    {"ttl_s": 0},
]


def pick(dice: random.Random, phones: list[str], number: int) -> list[Case]:
    """Return requests of a round: most are good, some bad, and many name keys that are known or that others name now."""
    told: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    found: list[Case] = []
    for n in range(TOGETHER):
        caller = dice.choice(CALLERS)
        asked: dict[str, Any] = {"type": f"t{dice.randrange(3)}", "title": "Hi", "audience": "everyone"}
        asked["key"] = f"{number} {n}" if dice.random() < 0.5 else f"k{dice.randrange(60)}"
        asked |= dice.choice(BAD if dice.random() < 0.03 else GOOD)
        if asked["audience"] == "everyone" and dice.random() < 0.3:
            asked |= {
                "audience": "installations",
                "installations": dice.choices([*phones, str(uuid4())], k=dice.choice((1, 1, 3))),
            }
        if dice.random() < 0.1:
            asked["project"] = dice.choice((None, "shop", "bank"))
        if dice.random() < 0.2:
            asked["on_conflict"] = dice.choice(("keep", "refuse"))
        # Which of two that come at once with other contents is kept is nobody's promise.
        same = caller.project or asked.get("project"), asked["type"], asked["key"]
        found.append((caller, told.setdefault(same, asked)))
    return found


def on(side: str, case: Case) -> Case:
    """Return a request with the mark of a side on its type, but for types that are Relevo's own."""
    caller, asked = case
    kind = asked["type"]
    return caller, asked | {"type": kind if kind.startswith("relevo.") else f"{side}.{kind}"}


def said(side: str, case: Case, answer: Enqueued | BaseException) -> str:
    """Return what a request was told, without ids and without its side."""
    caller, asked = case
    if isinstance(answer, Enqueued):
        told = f"{answer.created} {answer.same_content} {sorted(map(str, answer.unknown_installations))}"
    else:
        assert isinstance(answer, RelevoError), answer
        told = f"{type(answer).__name__} {answer.message} {answer.hint}".replace(f"{side}.", "")
    return f"{caller.id} {asked['type']} {asked['key']} {asked.get('project')}: {told}"


def one_by_one(database: Database, asked: list[Case]) -> list[Enqueued | BaseException]:
    """Enqueue events as requests did that shared nothing."""
    answers: list[Enqueued | BaseException] = []
    for caller, event in asked:
        try:
            answers += events.enqueue(Caller(database, Proof(caller)), [event])
        except RelevoError as error:
            answers.append(error)
    return answers


@pytest.mark.parametrize("size", [1, 4])
def test_shared_writes_tell_and_leave_the_same(
    build: Callable[..., App], conn: psycopg.Connection[Any], size: int
) -> None:
    """Random requests of three callers: each is told the same as one by one, and the tables hold the same."""
    dice, database = random.Random(size), build().database.beside("relevo test", size)
    phones = [str(phone(conn, project)) for project in ("default", "shop", "bank")]
    outcomes: Counter[str] = Counter()

    async def story() -> None:
        threads = DatabaseThreads(database, size, 60)
        writes = SharedWrites(threads)
        for number in range(ROUNDS):
            asked = pick(dice, phones, number)
            first, second = ([on(side, case) for case in asked] for side in SIDES)
            expected = one_by_one(database, first)
            async with asyncio.timeout(60):
                coming = (writes.enqueue(caller, event, 100) for caller, event in second)
                found = await asyncio.gather(*coming, return_exceptions=True)
            alone = sorted(map(said, [SIDES[0]] * len(asked), asked, expected))
            assert sorted(map(said, [SIDES[1]] * len(asked), asked, found)) == alone, number
            outcomes.update(type(each).__name__ for each in found)
            outcomes["known"] += sum(isinstance(each, Enqueued) and not each.created for each in found)
        threads.close()

    asyncio.run(story())
    database.close()
    for name, table in TABLES.items():
        whole = f"select q.event_type, to_jsonb(q) - 'event_type' from ({table}) q where starts_with(q.event_type, %s)"
        one, two = (
            Counter((kind.removeprefix(side), str(row)) for kind, row in conn.execute(whole, [f"{side}."]).fetchall())
            for side in SIDES
        )
        assert one == two, name
        assert one, name
    writes = conn.execute(
        "select count(distinct xmin::text), count(*) from relevo.notification_events where event_type like 'two.%'"
    )
    transactions, events = writes.fetchone() or (0, 0)
    assert transactions < events, "some were written together"
    assert {"EventConflictError", "InvalidInputError", "NotAllowedError", "known"} <= outcomes.keys(), outcomes
