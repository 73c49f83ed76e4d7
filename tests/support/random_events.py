"""Events by chance, as the SQL functions take them: usual ones, and ones with a few odd fields."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

SOON, LATER, BEFORE = ((datetime.now(UTC) + timedelta(hours=n)).isoformat() for n in (1, 2, -2))
STRANGER = "00000000-0000-4000-8000-000000000000"
GOOD: dict[str, Sequence[Any]] = {
    "type": ("chat", "told", "completed", "ñandú ", "x" * 100),
    "key": ("a", "known", " b ", "ñ" * 300, "archived", "forgotten", "é\u0301"),
    "title": ("Ana", "ñ", " x", "\u200bAna", "x" * 500),
    "body": (None, "", "Hello", "x" * 2000, "\n"),
    "data": (None, {}, {"chat": 7}, {"a": [1, None, {"b": "ñ"}]}, {"a": "x" * 2000}),
    "push": (None, {}, {"sound": "default"}, {"badge": "unread"}, {"badge": 3, "channelId": "c"}),
    "category": (None, "chats"),
    "lane": (None, "urgent", "bulk"),
    "at_most_once": (None, True, False),
    "ttl_s": (None, 1, 60.0, 2_419_200),
    "scheduled_at": (None, SOON),
    "deadline_at": (None, LATER),
    "on_conflict": (None, "keep", "refuse"),
    "project": (None, "shop", "default"),
}
ODD: dict[str, Sequence[Any]] = {
    "type": (None, "", " ", "x" * 101, 7, "relevo.chat"),
    "key": (None, "", "ñ" * 301, 7, "  "),
    "title": (None, "", " ", "\u200b", "x" * 501, 7, []),
    "body": ("x" * 2001, 7, {}),
    "data": ([], "x", {"a": "x" * 3000}, {"a": '"' * 1500}, {"a": "ñ" * 1900}),
    "push": ([], "x", {"a": 1}, {"badge": True}, {"badge": "many"}, {"richContent": {"image": "ñ" * 1600}}),
    "category": ("", "x" * 101, 7),
    "lane": ("fast", "", 7),
    "at_most_once": ("true", 1),
    "ttl_s": (0, 1.5, 2_419_201, 1e300, "60"),
    "scheduled_at": ("soon", 7, "2030-02-30T10:00:00Z"),
    "deadline_at": (BEFORE, "soon", SOON),
    "on_conflict": ("both",),
    "project": ("", "x" * 201, 7),
    "topics": (["a"], []),
    "matching": ({"rubros": ["43"]}, {}),
    "collapse": ("x",),
    "batch": ({"key": "x"},),
    "licitacion_id": (1, 1.5),
    "colour": ("red", None),
}


def event(chance: random.Random, phones: Sequence[UUID], owners: Sequence[str]) -> dict[str, Any]:
    """Return an event for some of these phones or owners; one of four has something odd."""
    made: dict[str, Any] = {"type": "chat", "key": f"k{chance.random()}", "title": "Ana"}
    for name in chance.sample(sorted(GOOD), chance.randrange(6)):
        made[name] = chance.choice(GOOD[name])
    if chance.random() < 1 / 20:  # nearly too heavy
        made["data"] = {"a": chance.choice(("x", "ñ", '"', "📋")) * chance.randint(800, 3_700)}
    made |= _audience(chance, phones, owners)
    if chance.random() < 1 / 4:
        for name in chance.sample(sorted(ODD), chance.choice((1, 1, 2))):
            made[name] = chance.choice(ODD[name])
    for name in chance.sample(sorted(made), chance.choice((0,) * 19 + (1,))):
        del made[name]
    return made


def _audience(chance: random.Random, phones: Sequence[UUID], owners: Sequence[str]) -> dict[str, Any]:
    named = [*map(str, phones), STRANGER, str(phones[0]).upper()]
    match chance.randrange(14):
        case 0:
            return {
                "audience": chance.choice(("everyone", "all", None, 7)),
                "owners": chance.choice((None, ["ana"], [])),
            }
        case 1:
            odd = ([], None, ["me"], [7], str(phones[0]), {}, [f"{phones[0]}\n"], [f'{phones[0]}", "{phones[0]}'])
            return {"audience": "installations", "installations": chance.choice(odd)}
        case 6:
            lists = (
                [],
                None,
                [""],
                [7],
                [None],
                ['"'],
                ["a\\", "b"],
                ["x" * 200],
                ["x" * 201],
                "ana",
                {},
                ["ñ"] * 1001,
            )
            return {"audience": "owners", "owners": chance.choice(lists)}
        case 2 | 3 | 4 | 5:
            return {"audience": "owners", "owners": chance.choices([*owners, "nobody"], k=chance.randint(1, 4))}
        case _:
            some = chance.choices(named, k=chance.randint(1, 4))
            return {"audience": "installations", "installations": some}
