"""Texts per language: what an event of a type with texts costs to send, beside one with text of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.dispatch import least
from bench.environment import Environment, statements
from bench.measuring import Cost, Goal, Row
from relevo.app import App
from relevo.client import values, verbs
from relevo.operators import words

SQL = statements(__file__)
_TITLE = "{count, plural, one {# tender} few {# tenders} many {# tenders} other {# tenders}}"
_TEXTS = {
    locale: {"title": _TITLE, "body": "{worth, number, ::currency/CLP}"} for locale in ("en", "es", "es-CL", "pl")
}
_TYPES: dict[str, dict[str, Any]] = {
    "words": {"arguments": {"count": 3, "worth": 120_000_000}, "texts": _TEXTS},
    "zoned": {"arguments": {"at": "2026-09-06T04:30:00Z"}, "texts": {"en": {"title": "{at, date, ::EEEdMMMjmm}"}}},
}
_SAID = {"words": "texts in four languages", "zoned": "texts with times in twelve zones"}


def rows(env: Environment) -> Iterator[Row]:
    """Send an event with a text of its own, one in four languages and one with times, in turns."""
    env.conn.execute(SQL["give_locales"])
    with env.worker() as built:
        for name, given in _TYPES.items():
            wording = words.parse({"type": f"bench.{name}", "default": "en", **given})
            words.save(built.database, wording)
        _send(env, built, "", "warm")
        turns = [
            [_send(env, built, name, f"{name}{turn}") for name in ("", *_TYPES)] for turn in range(env.sizes.rounds)
        ]
    plain, *others = (least(list(costs)) for costs in zip(*turns, strict=True))
    for name, cost in zip(_TYPES, others, strict=True):
        more_us = cost.cpu_ms - plain.cpu_ms  # milliseconds per 1,000 are microseconds each
        goal = Goal("more_us_per_phone", 10, "µs more")
        said = f"{more_us:+.1f} µs a phone"
        yield Row(
            name, f"dispatch of {_SAID[name]}, beside plain text", said, cost, {"more_us_per_phone": more_us}, [goal]
        )


def _send(env: Environment, built: App, name: str, key: str) -> Cost:
    """Queue an event for everyone and measure how it is sent; without a name one with text of its own."""
    told = {"arguments": _TYPES[name]["arguments"]} if name else {"title": "3 tenders", "body": "$120.000.000"}
    verbs.enqueue(env.conn, values.Event(f"bench.{name}", key, audience="everyone", **told))
    env.run(built, built.registry["fanout"], "deliveries_created")
    return env.drain(built)
