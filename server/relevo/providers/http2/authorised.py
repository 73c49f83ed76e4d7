"""Shared parts of push services with access tokens beside HTTP/2: a token that is refused is renewed once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from relevo.core.model import Reply, Ticket
from relevo.core.sending_project import SendingProject
from relevo.providers.access_tokens import AccessTokens, NoTokenError
from relevo.providers.http2.client import CallOutcome, CallTime, Heard
from relevo.providers.http2.provider import E, Http2Provider, Tickets, clean, clock_trouble, whole
from relevo.providers.push_projects import PushProject, Unusable


class AuthorisedProvider(Http2Provider[E, bytes]):
    """A push service that takes messages with an access token, each as one body."""

    tokens: AccessTokens[E]
    account: ClassVar[str]
    """The account of an access token, as doctor shows it."""
    everybodys: ClassVar[frozenset[str]]
    """Credential faults that say nothing of a phone: all of a request has them, or none."""
    look: ClassVar[bytes]
    """A message that the service checks and never sends."""

    @abstractmethod
    def _ticket(self, outcome: CallOutcome) -> Ticket:
        """Return the outcome of a message."""

    @abstractmethod
    def _is_unauthenticated(self, outcome: CallOutcome) -> bool:
        """Return whether a message was refused for its access token."""

    @abstractmethod
    def _post(
        self, project: PushProject[E], token: str, bodies: Sequence[bytes], call: CallTime, heard: Heard
    ) -> list[CallOutcome]:
        """Post messages with an access token."""

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        super().close()
        self.tokens.close()

    def trouble(self, project: str) -> str:
        """Return why nothing could be sent in a project, after asking about a message that is only checked."""
        found = self._projects.find(self.entry, SendingProject.parse(project).name)
        if isinstance(found, Unusable):
            return found.message
        try:
            [outcome] = self._post_authorised(found, [self.look], Tickets())
        except NoTokenError as error:
            why = f"{self.account} refuses its account" if error.refused else "no access token can be had"
            return clock_trouble(self.tokens.date, self._clock()) or f"{why}: {error}"
        ticket = self._ticket(outcome)
        if ticket.fate == "credential":
            return f"{self.facts.label} refuses it: {ticket.code} {ticket.message or ''}".strip()
        if ticket.fate in ("not_sent", "unclear"):
            return f"{self.facts.label} cannot be asked: {ticket.code} {ticket.message or ''}".strip()
        return clock_trouble(self.tokens.date, self._clock())

    def _send(
        self,
        project: PushProject[E],
        part: str,  # noqa: ARG002
        ready: Sequence[bytes],
        tickets: Tickets,
    ) -> Reply:
        try:
            outcomes = self._post_authorised(project, ready, tickets)
        except NoTokenError as error:
            kind, code = ("unauthorised", "TokenRefused") if error.refused else ("not_sent", "NoToken")
            return Reply(kind, code=code, message=clean(str(error)))  # type: ignore[arg-type]
        found = [tickets.of(place, partial(self._ticket, each)) for place, each in enumerate(outcomes)]
        return whole(outcomes) or self._reply(found)

    def _post_authorised(self, project: PushProject[E], bodies: Sequence[bytes], tickets: Tickets) -> list[CallOutcome]:
        """Post messages; those that are refused for the access token once more, with a new one."""
        call = CallTime(self._total_s)
        token = self.tokens.get(project)
        outcomes = self._post(project, token, bodies, call, partial(tickets.hear, judge=self._ticket))
        refused = [place for place, each in enumerate(outcomes) if self._is_unauthenticated(each)]
        if not refused:
            return outcomes
        self.tokens.drop(project, token)
        try:
            renewed = self.tokens.get(project)
        except NoTokenError:  # what others were told stands; these were refused for their credential
            return outcomes
        if call.may_begin() and renewed != token:
            again = self._post(
                project,
                renewed,
                [bodies[place] for place in refused],
                call,
                lambda index, answer: tickets.hear(refused[index], answer, judge=self._ticket),
            )
            for place, outcome in zip(refused, again, strict=True):
                outcomes[place] = outcome
        return outcomes

    def _reply(self, tickets: Sequence[Ticket]) -> Reply:
        """Return one ticket for each message; or what befell them all, if that is the project's."""
        first = tickets[0]
        if first.code in self.everybodys and all(
            each.fate == "credential" and each.code in self.everybodys for each in tickets
        ):
            return Reply("unauthorised", code=first.code, message=first.message)
        return Reply("answered", tickets)
