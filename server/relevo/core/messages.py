"""The content of a push: an event's draft in Expo's words, and the messages that providers write of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from relevo.core.model import Delivery

Message = Mapping[str, Any]
"""One push in Expo's words: `to`, `title`, `body`, `data`, `ttl` and so on."""


class Draft(NamedTuple):
    """The common content of the pushes of one event to phones of one kind."""

    fields: Mapping[str, Any]
    """In Expo's words; without `to`, `ttl` and `data`."""
    data: Mapping[str, Any]
    ttl_s: int | None
    """How long it is worth something, if its event says so."""
    default_ttl_s: int = 0
    is_silent: bool = False
    """Whether it is for the app alone: it has neither a title nor a body to show."""

    def ttl(self, delivery: Delivery) -> int:
        """Return the remaining time to live: never beyond the deadline, whatever the event says."""
        if delivery.seconds_left is None:
            return self.default_ttl_s if self.ttl_s is None else self.ttl_s
        left = max(0, int(delivery.seconds_left))
        return left if self.ttl_s is None else min(left, self.ttl_s)

    def message(self, delivery: Delivery) -> dict[str, Any]:
        """Return the push of one delivery: where it goes, how long it is worth something, and its names for the app."""
        message = dict(self.fields)
        message["to"] = delivery.token
        message["ttl"] = self.ttl(delivery)
        message["data"] = {**self.data, **names(delivery)}
        return message


def names(delivery: Delivery) -> dict[str, Any]:
    """Return the entries of `data` that name a delivery to the app."""
    return {
        "notificationDeliveryId": delivery.id,
        "installationId": str(delivery.installation_id),
        "pushProvider": delivery.provider,
    }


class WrittenMessage(Mapping[str, Any]):
    """A message that its provider wrote already; as a mapping it is what the draft says, as any other message."""

    __slots__ = ("_message", "delivery", "draft")

    def __init__(self, draft: Draft, delivery: Delivery) -> None:
        self.draft = draft
        self.delivery = delivery

    @abstractmethod
    def json(self) -> str:
        """Return what of it is sent as JSON."""

    def _whole(self) -> dict[str, Any]:
        if not hasattr(self, "_message"):  # hardly anybody looks
            self._message = self.draft.message(self.delivery)
        return self._message

    def __getitem__(self, key: str) -> Any:
        return self._whole()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())
