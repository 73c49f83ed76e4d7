"""Shadow mode: the push service of claims of which nothing is ever sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from relevo.core.known_services import SERVICES
from relevo.core.messages import Message
from relevo.core.model import SHADOW, ReceiptReply, Reply, Ticket
from relevo.core.ports import ProviderFacts, PushProvider

_MAX_MESSAGES = 100


class ShadowProvider:
    """A push service that checks messages as the real one does, and sends none: it has no way to.

    Without the real one, for which this process may have no credentials, it checks nothing.
    """

    max_receipts = 0

    def __init__(self, name: str, facts: ProviderFacts | None, checks: PushProvider | None) -> None:
        self.name = name
        self.max_messages = checks.max_messages if checks is not None else _MAX_MESSAGES
        if facts is not None:
            self.facts = facts
        self._checks = checks

    @classmethod
    def of(cls, name: str, real: PushProvider | None) -> Self:
        """Take the place of a push service, which may be missing."""
        facts = getattr(real, "facts", None) or (SERVICES[name].sending if real is None and name in SERVICES else None)
        return cls(name, facts, real)

    def refuse_token(self, token: object) -> Ticket | None:
        """Refuse what the real one refuses."""
        return self._checks.refuse_token(token) if self._checks is not None else None

    def refuse(self, message: Message) -> Ticket | None:
        """Refuse what the real one refuses."""
        return self._checks.refuse(message) if self._checks is not None else None

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:  # noqa: ARG002 nothing leaves
        """Send nothing."""
        return Reply("held_back", code=SHADOW)

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:  # noqa: ARG002
        """Ask for nothing: there are no tickets."""
        return ReceiptReply("held_back", code=SHADOW)

    def close(self) -> None:
        """Do nothing: the real one is closed where it was opened."""
