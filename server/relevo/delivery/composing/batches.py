"""Contents of batches right before they are sent, without events that ended or were handled since they closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from relevo.core import queries, wordings
from relevo.core.model import Content
from relevo.core.wordings import RenderError
from relevo.database.arrays import array
from relevo.database.pool import Connection, Database
from relevo.delivery.claiming import columns
from relevo.delivery.known_wordings import Wordings

_SQL = queries.load("dispatch")
_NAMED = "batch"  # the data of each push that tells a batch has it
_TOGETHER = 100  # a batch may have a thousand events, and a statement has some seconds


@dataclass(frozen=True)
class BatchContents:
    """The contents of a claim's events, after a last read of the batches that some of them announce."""

    contents: Mapping[int, Content] = field(default_factory=dict)
    over: frozenset[int] = frozenset()
    """The events of whose batch nothing is left."""
    unrendered: frozenset[int] = frozenset()
    """The events whose texts have to be rendered anew, which this process cannot."""

    @classmethod
    def of(
        cls, database: Database, known: Wordings, contents: Mapping[int, Content], now: datetime | None = None
    ) -> BatchContents:
        """Read what is left of the batches among some events; without one, as mostly, nothing is asked."""
        asked = [event for event, content in contents.items() if _NAMED in content.data]
        if not asked:
            return cls(contents)
        with database.connection() as connection:
            parts = (asked[first : first + _TOGETHER] for first in range(0, len(asked), _TOGETHER))
            looks = (connection.execute(_SQL["retell_batches"], {"events": array(part), "now": now}) for part in parts)
            rows = [row for look in looks for row in look.fetchall()]
            told = {event: _retold(connection, known, contents[event], *said) for event, left, *said in rows if left}
        return cls(
            {**contents, **{event: content for event, content in told.items() if content is not None}},
            frozenset(event for event, left, *_ in rows if not left),
            frozenset(event for event, content in told.items() if content is None),
        )


def _retold(connection: Connection, known: Wordings, former: Content, event_type: str, *said: Any) -> Content | None:
    """Return what a batch says now; None if this process cannot render it.

    Texts that cannot be rendered for what is left stay as they were.
    """
    words_of, title, body, data, push, wording, texts, arguments = said
    told = columns.content_of(former.id, title, body, data, push, wording, texts or "{}", arguments)
    if told.wording is None or told.texts:
        return told._replace(words_of=words_of or "")
    if not wordings.is_available():
        return None
    rendered = known.read(connection, event_type, told.wording)
    try:
        anew = {} if rendered is None else rendered.render_all(told.arguments)
    except RenderError:
        return former
    return told._replace(texts={locale: text.fields() for locale, text in anew.items()}) if anew else former
