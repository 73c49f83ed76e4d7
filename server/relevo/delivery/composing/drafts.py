"""Contents of a claim's events for its phones: read once for all, drafted once for each kind of phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from relevo.core import queries, wordings
from relevo.core.known_services import SERVICES
from relevo.core.messages import Draft
from relevo.core.model import DIGEST, Content, Delivery
from relevo.database.arrays import array, uuid_array
from relevo.delivery.claiming import columns
from relevo.delivery.composing import rendering
from relevo.delivery.composing.batches import BatchContents
from relevo.delivery.composing.digests import Digests
from relevo.delivery.composing.phone_texts import PhoneTexts
from relevo.delivery.worker_services import ClaimContext

_SQL = queries.load("dispatch")
Kind = tuple[int, str | None, tuple[str, str] | None, int | None, bool]
"""The common values of deliveries whose messages differ by their names alone: event, platform, words, badge, hush."""
_COUNTED_TOGETHER = 100
_LIGHT_BYTES = 3_000  # of the 4096 that every push service bears; what a delivery adds is far below the rest
_FOR_IOS = frozenset(each.name for each in SERVICES.values() if each.platforms == ("ios",))
"""Providers whose phones get iOS fields, whatever is known of their platform."""


@dataclass
class Drafts:
    """The drafts of one claim's events, with the batches, digests and texts that they are made of."""

    context: ClaimContext
    contents: Mapping[int, Content] = field(default_factory=dict)
    """The contents of events, by their ids; deleted events are missing."""
    _gathered: BatchContents = field(default_factory=BatchContents)
    _texts: PhoneTexts | None = None
    _digests: Digests | None = None
    _unread: dict[UUID, int] = field(default_factory=dict)
    """How much is unread in the inboxes of phones, where an event asks for that."""
    _drafts: dict[Kind, tuple[Draft, bool]] = field(default_factory=dict)

    def read(self, deliveries: Sequence[Delivery]) -> None:
        """Read what the events of some deliveries say, for each of their phones."""
        database, known = self.context.services.database, self.context.services.wordings
        self._gathered = BatchContents.of(database, known, self._read_contents(deliveries), self.context.now)
        self.contents = self._gathered.contents
        self._texts = PhoneTexts.of(database, known, deliveries, self.contents)
        self._digests = Digests.of(database, deliveries)
        self._count_unread(deliveries)

    def _read_contents(self, deliveries: Sequence[Delivery]) -> Mapping[int, Content]:
        """Return what the events of some deliveries say: as the claim returned it, or read now."""
        known = self.context.claim.contents
        if not (unknown := {delivery.notification_event_id for delivery in deliveries} - known.keys()):
            return known
        rows = self.context.services.database.execute(_SQL["read_contents"], {"events": array(unknown)}).fetchall()
        return {**known, **{row[0]: columns.content_of(*row) for row in rows}}

    def _count_unread(self, deliveries: Sequence[Delivery]) -> None:
        """Read once for all of these deliveries how much is unread, if the event of any asks for that as its badge."""
        asking = {event for event, content in self.contents.items() if content.push.get("badge") == rendering.UNREAD}
        if not asking:
            return
        sent = [each for each in deliveries if each.notification_event_id in asking and each.obstacle is None]
        phones, database = sorted({each.installation_id for each in sent}), self.context.services.database
        with suppress(psycopg.Error):  # a push without its badge is better than none; an outage is no such error
            for first in range(0, len(phones), _COUNTED_TOGETHER):
                some = uuid_array(phones[first : first + _COUNTED_TOGETHER])
                self._unread |= dict(database.execute(_SQL["count_unread"], {"installations": some}).fetchall())

    def is_over(self, delivery: Delivery) -> bool:
        """Return whether nothing is left of the digest or batch that a delivery tells."""
        if delivery.notification_event_id in self._gathered.over:
            return True
        return self._digests is not None and self._digests.is_empty(delivery)

    def lacks_words(self, content: Content) -> bool:
        """Return whether an event's text is still to be rendered, which this worker cannot."""
        if content.id in self._gathered.unrendered:
            return True
        return self._texts is not None and self._texts.renders(content.id) and not wordings.is_available()

    def kind(self, delivery: Delivery) -> Kind:
        """Return what tells apart what an event says to a delivery's phone from what it says to others."""
        spoken = None
        if self._digests is not None and delivery.event_type == DIGEST:
            spoken = self._digests.spoken(delivery)
        elif self._texts is not None:
            spoken = self._texts.spoken(delivery)
        unread, hushed = self._unread.get(delivery.installation_id), delivery.quiet_until is not None
        return delivery.notification_event_id, delivery.platform, spoken, unread, hushed

    def draft(self, content: Content, delivery: Delivery) -> tuple[Draft, bool]:
        """Return an event's draft, and whether it is so light that its messages need not be weighed one by one.

        Raises ValueError if what it says to the phone cannot be rendered.
        """
        kind = self.kind(delivery)
        *_, unread, hushed = kind
        known = self._drafts.get(kind)
        if known is None:
            settings = self.context.services.settings
            draft = rendering.draft(
                self._told(content, delivery),
                self.context.lane,
                ios=delivery.platform == "ios" or delivery.provider in _FOR_IOS,
                default_ttl_s=settings.push_ttl_s,
                unread=unread,
                quiet_channel=settings.push_quiet_channel if hushed else None,
                provider=delivery.provider,
                platform=delivery.platform,
            )
            weight = len(json.dumps([draft.fields, draft.data], ensure_ascii=False, allow_nan=False).encode())
            known = self._drafts[kind] = draft, weight < _LIGHT_BYTES
        return known

    def _told(self, content: Content, delivery: Delivery) -> Content:
        """Return what an event says to a delivery's phone; raises ValueError if that cannot be rendered."""
        texts = self._texts
        if self._digests is not None and delivery.event_type == DIGEST:
            wording = None if texts is None else texts.wordings.get(content.id)
            zone = "UTC" if texts is None else texts.zones.get(delivery.installation_id, "UTC")
            return self._digests.content(content, delivery, wording, zone)
        return content if texts is None else texts.told(content, delivery)
