"""Contents of digests for each phone of a claim, read right before they are sent, without ended or refused events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from relevo.core import digest_texts, queries
from relevo.core.locales import best
from relevo.core.model import DIGEST, Content, Delivery
from relevo.core.wordings import RenderError, Text, Wording
from relevo.database.arrays import array, uuid_array
from relevo.database.pool import Database
from relevo.delivery.composing.phone_texts import read_project_locale

_SQL = queries.load("digest")
_NAMED = 3


class _Told(NamedTuple):
    """The content of a phone's digest: how many events are left in it, and the best three of them."""

    total: int
    events: Sequence[int]


class _Name(NamedTuple):
    """How an event is called, in general and by locale."""

    plain: str
    texts: Mapping[str, Mapping[str, str]]

    def to(self, locale: str | None, project_locale: str | None) -> str:
        """Return its name in a phone's language, or the project's, if it has one there."""
        said = self.texts.get(best(locale, tuple(self.texts), "", project_locale), {}) if self.texts else {}
        return said.get("title") or said.get("body") or self.plain


class Digests:
    """The digests among the deliveries of a claim."""

    def __init__(
        self, told: Mapping[tuple[int, UUID], _Told], names: Mapping[int, _Name], project_locale: str | None
    ) -> None:
        self._told, self._names, self._project_locale = told, names, project_locale

    @classmethod
    def of(cls, database: Database, deliveries: Sequence[Delivery], now: datetime | None = None) -> Digests | None:
        """Read what the digests among some deliveries say; None if there is none, as mostly."""
        digests = [each for each in deliveries if each.event_type == DIGEST]
        if not digests:
            return None
        asked = {
            "events": array([each.notification_event_id for each in digests]),
            "installations": uuid_array([each.installation_id for each in digests]),
            "now": now,
        }
        with database.connection() as connection:
            rows = connection.execute(_SQL["read_digests"], asked).fetchall()
            told = {(event, phone): _Told(more + len(events), events[:_NAMED]) for event, phone, more, events in rows}
            named = sorted({event for each in told.values() for event in each.events})
            found = connection.execute(_SQL["read_digested"], {"events": array(named)}).fetchall()
            project_locale = read_project_locale(connection, digests[0].project)
        names = {event: _Name(plain, json.loads(texts or "{}")) for event, plain, texts in found}
        return cls(told, names, project_locale)

    def is_empty(self, delivery: Delivery) -> bool:
        """Return whether nothing is left to tell by a digest, or nobody knows any more what it was."""
        return delivery.event_type == DIGEST and self._count(delivery) <= 0

    def spoken(self, delivery: Delivery) -> tuple[str, str]:
        """Return a key of its own for what a digest says to a phone."""
        return delivery.locale or "", f"delivery {delivery.id}"

    def content(self, content: Content, delivery: Delivery, wording: Wording | None, zone: str) -> Content:
        """Return what a digest says to a phone: by the texts saved for it, or by ours if these cannot be rendered."""
        count, names = self._count(delivery), self._names_of(delivery)
        said = digest_texts.text(delivery.locale, self._project_locale, count, names)
        if wording is not None:
            locale = best(delivery.locale, tuple(wording.texts), wording.default_locale, self._project_locale)
            with suppress(RenderError):
                said = _worded(wording, locale, zone, count, names)
        push = {**content.push, "subtitle": said.subtitle} if said.subtitle else content.push
        data = {**content.data, "total": count}
        return content._replace(title=said.title, body=said.body, push=push, data=data)

    def _count(self, delivery: Delivery) -> int:
        told = self._told.get((delivery.notification_event_id, delivery.installation_id))
        return 0 if told is None else told.total

    def _names_of(self, delivery: Delivery) -> list[str]:
        events = self._told[delivery.notification_event_id, delivery.installation_id].events
        return [
            self._names[event].to(delivery.locale, self._project_locale) for event in events if event in self._names
        ]


def _worded(wording: Wording, locale: str, zone: str, count: int, names: Sequence[str]) -> Text:
    """Render a digest by the texts that were saved for it."""
    first, second, third = ([digest_texts.shortened(name) for name in names] + [""] * _NAMED)[:_NAMED]
    arguments = {"count": count, "more": count - len(names), "first": first, "second": second, "third": third}
    return wording.render(locale, arguments, zone)
