"""Wording: events that are told by the texts of their type get them, in every language, before they fan out.

The version is chosen here, when an event falls due: a correction reaches what waits. Nothing that cannot be rendered
comes near a phone: such an event ends, and says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg

from relevo.client.checks import is_blank
from relevo.core import queries, wordings
from relevo.core.locales import common_zone
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.core.wordings import MOST_TOGETHER, RenderError, Text
from relevo.database.arrays import array, text_array
from relevo.database.pool import Connection
from relevo.delivery.known_wordings import Wordings
from relevo.runtime.runs import Run

_SQL = queries.load("words", "fanout")
_TOGETHER = 200
_STEP_S = 0.5
"""How long a step renders: an event with 50 languages takes up to 0.1 s, and fan-out waits meanwhile."""


class _Unworded(NamedTuple):
    """An event that waits for its texts, locked by this transaction."""

    id: int
    event_type: str
    version: int | None
    zoned: bool
    """Whether a text of that version names a time."""
    arguments: str
    room: int
    """How many bytes a text may have, as one that an app gives."""
    too_late: bool


class _Worded(NamedTuple):
    """An event's texts, by locale."""

    id: int
    version: int
    default: Text
    texts: dict[str, Text]


def word_due(run: Run, known: Wordings, event_id: int | None = None) -> Step | None:
    """Give events that are due their texts, or one of them; None if none waits for any.

    Where ICU is missing, only what is late is ended.
    """
    with run.transaction("bound_relaxed") as connection:
        due = _pick(run, connection, event_id)
        return _word(run, connection, due, known) if due else None


def list_due(run: Run) -> list[int]:
    """List events that are due and wait for their texts."""
    with run.transaction("bound_relaxed") as connection:
        return [event.id for event in _pick(run, connection)]


def _pick(run: Run, connection: Connection, event_id: int | None = None) -> list[_Unworded]:
    asked = {
        "only_late": not wordings.is_available(),
        "given_up": array(run.given_up.events),
        "event_id": event_id,
        "limit": _TOGETHER,
        "now": run.now,
    }
    return [_Unworded._make(row) for row in connection.execute(_SQL["pick_unworded"], asked).fetchall()]


def _word(run: Run, connection: Connection, due: Sequence[_Unworded], known: Wordings) -> Step:
    late = [event.id for event in due if event.too_late]
    if late:
        connection.execute(_SQL["expire_events"], {"events": array(late), "now": run.now})
    worded: list[_Worded] = []
    wrong: dict[int, str] = {}
    zones = _read_zones(connection, due)
    until = time.monotonic() + _STEP_S
    for event in due:
        if (worded or wrong) and time.monotonic() > until:
            break  # the others have their turn; what is left comes with the next step
        if not event.too_late:
            try:
                worded.append(_render(connection, event, known, zones.get(event.id)))
            except (psycopg.Error, ImportError, MemoryError):  # this process's own trouble
                raise
            except Exception as error:  # noqa: BLE001 whatever it is, it belongs to this event
                said = str(error) if isinstance(error, RenderError) else normalise_error(error, 200)
                wrong[event.id] = f"its texts could not be rendered: {said}"
    if worded:
        connection.execute(_SQL["word_events"], _rows(worded) | {"now": run.now})
    if wrong:
        ended = {"events": array(wrong), "whys": text_array(wrong.values()), "now": run.now}
        connection.execute(_SQL["end_unworded"], ended)
    done = {"events_worded": len(worded), "events_expired": len(late), "events_unrendered": len(wrong)}
    problems = tuple(f"event {event}: {why}"[:300] for event, why in list(wrong.items())[:3])
    return Step(
        {name: count for name, count in done.items() if count}, sum(done.values()), more=True, problems=problems
    )


def _read_zones(connection: Connection, due: Sequence[_Unworded]) -> dict[int, str]:
    """Read for which time zone each event is worded whose texts name a time: pages, inboxes and the archive show it."""
    zoned = [event.id for event in due if event.zoned and not event.too_late]
    if not zoned:
        return {}
    rows = connection.execute(_SQL["read_zones_of_events"], {"events": array(zoned)}).fetchall()
    return {event: common_zone(of_phones, of_project) for event, of_phones, of_project in rows}


def _render(connection: Connection, event: _Unworded, known: Wordings, zone: str | None) -> _Worded:
    wording = None if event.version is None else known.read(connection, event.event_type, event.version)
    if wording is None or event.version is None:
        raise RenderError("no version of them fits its arguments")
    texts = wording.render_all(json.loads(event.arguments, parse_float=Decimal), zone)
    for locale, text in texts.items():
        if is_blank(text.title) and is_blank(text.body):
            raise RenderError(f"{locale} shows nothing: its title and body are blank")
        if text.bytes > event.room:
            raise RenderError(f"{locale} is too large for a push by {text.bytes - event.room} bytes")
    if (together := sum(text.bytes for text in texts.values())) > MOST_TOGETHER:
        raise RenderError(f"all languages together have {together} bytes, and {MOST_TOGETHER} are the most")
    return _Worded(event.id, event.version, texts[wording.default_locale], texts)


def _rows(worded: Sequence[_Worded]) -> dict[str, Any]:
    return {
        "events": array([each.id for each in worded]),
        "versions": array([each.version for each in worded]),
        "titles": text_array([each.default.title for each in worded]),
        "bodies": text_array([each.default.body for each in worded]),
        "texts": text_array([_json(each.texts) for each in worded]),
    }


def _json(texts: dict[str, Text]) -> str:
    return json.dumps({locale: text.fields() for locale, text in texts.items()}, ensure_ascii=False)
