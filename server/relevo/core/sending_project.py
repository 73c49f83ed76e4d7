"""The key of a project's rate, breaker, brake and connections: whose pushes they are, and by which service they go."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Self

from relevo.core.known_services import EXPO, LABELS, NATIVE, PLATFORMS, SERVICES

_BETWEEN = "::"


class SendingProject(NamedTuple):
    """A project of a provider, or the part of it that fails and recovers by itself."""

    provider: str
    name: str
    part: str = ""
    """As known_services has it: the phones' platform, their environment, or their push service's host."""

    @classmethod
    @lru_cache(maxsize=4_096)
    def parse(cls, text: str) -> Self:
        """Read it as deliveries name it; relevo.sending_project writes it so in SQL."""
        provider, between, name = text.partition(_BETWEEN)
        if not between:
            return cls(EXPO, text)
        if provider not in NATIVE:
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
        if self.provider not in NATIVE:
            return str(self)
        return ", ".join(filter(None, (LABELS[self.provider], self.name, PLATFORMS.get(self.part, self.part))))


def project_in_words(text: str | None) -> str:
    """Write a project for people, given as deliveries name it."""
    return SendingProject.parse(text).in_words() if text else ""


def slow_starter(text: str) -> str:
    """Return the push service of a project, for people, if its rate grows after a rest; else nothing."""
    service = SERVICES.get(SendingProject.parse(text).provider)
    return service.label if service is not None and service.sending.ramp_s else ""
