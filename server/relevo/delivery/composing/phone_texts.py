"""Texts of a claim's events for each phone: in its language, and with times in its time zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from relevo.core import queries
from relevo.core.locales import best, zone_named
from relevo.core.model import DIGEST, Content, Delivery
from relevo.core.sending_project import SendingProject
from relevo.core.wordings import RenderError, Text, Wording
from relevo.database.arrays import uuid_array
from relevo.database.pool import Connection, Database
from relevo.delivery.known_wordings import Wordings

_SQL = queries.load("words")
Spoken = tuple[str, str]
"""In which locale an event is told, and for which time zone: none if no text names a time."""


@dataclass
class PhoneTexts:
    """The texts of one claim: each is rendered once per event, locale and, where it names a time, time zone."""

    wordings: Mapping[int, Wording]
    """By event, of those that are told by the texts of their type."""
    locales: Mapping[int, tuple[str, ...]]
    """Of each the locales that it was rendered in."""
    zones: Mapping[UUID, str] = field(default_factory=dict)
    """In which time zone phones are, if any of these events names a time."""
    project_locale: str | None = None
    """For phones whose language an event has no text in."""
    _told: dict[tuple[int, Spoken], Content] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        database: Database,
        known: Wordings,
        deliveries: Sequence[Delivery],
        contents: Mapping[int, Content],
    ) -> PhoneTexts | None:
        """Read what a claim needs for its texts; None if all of its events have their own, as most have."""
        worded = {each.id: each.wording for each in contents.values() if each.wording is not None}
        if not worded:
            return None
        types = {each.notification_event_id: each.event_type for each in deliveries}
        with database.connection() as connection:
            found = {
                event: known.read(connection, contents[event].words_of or types[event], worded[event])
                for event in worded
                if event in types
            }
            wordings = {event: wording for event, wording in found.items() if wording is not None}
            zoned = {event for event, wording in wordings.items() if wording.zoned}
            phones = [each.installation_id for each in deliveries if each.notification_event_id in zoned]
            zones = _read_zones(connection, phones) if phones else {}
            project_locale = read_project_locale(connection, deliveries[0].project)
        return cls(wordings, {event: tuple(contents[event].texts) for event in wordings}, zones, project_locale)

    def spoken(self, delivery: Delivery) -> Spoken:
        """Return in which locale, and for which time zone, an event is told to a phone."""
        wording = self.wordings.get(delivery.notification_event_id)
        if wording is None:
            return "", ""
        offered = self.locales[delivery.notification_event_id]
        locale = best(delivery.locale, offered, wording.default_locale, self.project_locale)
        return locale, self.zones.get(delivery.installation_id, "UTC") if wording.zoned else ""

    def renders(self, event_id: int) -> bool:
        """Return whether an event's texts are rendered when they are sent: they name a time, or tell a digest."""
        wording = self.wordings.get(event_id)
        return wording is not None and (wording.zoned or wording.event_type == DIGEST)

    def told(self, content: Content, delivery: Delivery) -> Content:
        """Return what an event says to a phone; raises RenderError, a ValueError."""
        if content.wording is None:
            return content
        if content.id not in self.wordings:
            raise RenderError(
                f"version {content.wording} of the texts of {content.words_of or delivery.event_type} is not there"
            )
        spoken = self.spoken(delivery)
        known = self._told.get((content.id, spoken))
        if known is None:
            known = self._told[content.id, spoken] = _in_words(self.wordings[content.id], content, spoken)
        return known


def _in_words(wording: Wording, content: Content, spoken: Spoken) -> Content:
    locale, zone = spoken
    said = wording.render(locale, content.arguments, zone) if zone else Text.of(content.texts[locale])
    push = {**content.push, "subtitle": said.subtitle} if said.subtitle else content.push
    return content._replace(title=said.title, body=said.body, push=push)


def read_project_locale(connection: Connection, project: str) -> str | None:
    """Return the locale that was set for phones whose own language has no text, of a project as deliveries name it."""
    asked = {"project": SendingProject.parse(project).name}
    row = connection.execute(_SQL["read_project_locale"], asked).fetchone()
    return row[0] if row else None


def _read_zones(connection: Connection, phones: Sequence[UUID]) -> dict[UUID, str]:
    rows = connection.execute(_SQL["read_timezones"], {"installations": uuid_array(phones)}).fetchall()
    return {phone: zone_named(row[0]) for phone, row in zip(phones, rows, strict=True)}
