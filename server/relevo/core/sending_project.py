"""The key of a project's rate, breaker, brake and connections: whose pushes they are, and by which service they go."""

from __future__ import annotations

from typing import NamedTuple, Self

EXPO = "expo"
SPLIT = ("fcm", "apns", "webpush")
"""The providers whose projects have parts of their own: what goes wrong with one part stops no other."""

LABELS = {"expo": "Expo", "fcm": "FCM", "apns": "APNs", "webpush": "Web Push"}
"""The names of providers for people."""

_BETWEEN = "::"
_PARTS = {"ios": "iOS", "android": "Android"}


class SendingProject(NamedTuple):
    """A project of a provider, or the part of it that fails and recovers by itself."""

    provider: str
    name: str
    part: str = ""
    """FCM: the phones' platform. APNs: production or sandbox. Web Push: the push service's host."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it as deliveries name it; relevo.sending_project writes it so in SQL."""
        provider, between, name = text.partition(_BETWEEN)
        if not between:
            return cls(EXPO, text)
        if provider not in SPLIT:
            return cls(provider, name)
        name, _, part = name.rpartition(_BETWEEN)
        return cls(provider, name, part) if name else cls(provider, part)

    def __str__(self) -> str:
        """Write it as deliveries name it: Expo's projects have their own name alone."""
        if self.provider == EXPO:
            return self.name
        return _BETWEEN.join((self.provider, self.name, self.part) if self.part else (self.provider, self.name))

    def in_words(self) -> str:
        """Write it for people, as in "FCM, shop, iOS"; what has no part stands as deliveries name it."""
        if self.provider not in SPLIT:
            return str(self)
        return ", ".join(filter(None, (LABELS[self.provider], self.name, _PARTS.get(self.part, self.part))))


def project_in_words(text: str | None) -> str:
    """Write a project for people, given as deliveries name it."""
    return SendingProject.parse(text).in_words() if text else ""
