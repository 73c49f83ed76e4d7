"""The state behind the sandbox, and what the push API does to it; without any HTTP."""

from __future__ import annotations

import hmac
import json
import time
from dataclasses import dataclass
from typing import Any

from relevo.sandbox import answers, messages, tokens
from relevo.sandbox.answers import Answer
from relevo.sandbox.faults import Fault, Kind, Rules, error_result, spoil
from relevo.sandbox.messages import Recipients
from relevo.sandbox.phones import Phones
from relevo.sandbox.projects import Projects
from relevo.sandbox.settings import Settings
from relevo.sandbox.tickets import Clock, Tickets

_OF_MESSAGES: tuple[Kind, ...] = ("ticket", "receipt", "silence")
_TOO_BIG = Fault("receipt-MessageTooBig", "receipt", "MessageTooBig")  # Expo takes it, and tells by the receipt


@dataclass(slots=True)
class Exchange:
    """What a request of the push API comes to: the answer, and the fault that spoils its way back."""

    answer: Answer
    fault: Fault | None = None
    project: str | None = None
    count: int = 0


@dataclass(slots=True)
class Counters:
    """What is counted beside the phones and tickets themselves."""

    send_requests: int = 0
    receipt_requests: int = 0
    messages: int = 0
    error_tickets: int = 0
    receipts_asked: int = 0
    receipts_given: int = 0
    rate_limited: int = 0


class World:
    """Phones, tickets, projects and faults, changed from one thread only; each of them is bounded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rules = Rules()
        self.projects = Projects()
        self._clock = Clock(settings.time_scale)
        self._tickets = Tickets(self._clock)
        self._tickets_before = 0
        self._met = tokens.Met()
        self.phones = Phones()
        self.counters = Counters()

    def change(self, changes: Any) -> None:
        """Change settings from now on."""
        self.settings = self.settings.changed(changes)
        self._clock.set_scale(self.settings.time_scale)

    def reset(self) -> None:
        """Forget the phones and start counting anew; tickets keep their receipts, settings and faults stay."""
        self.phones = Phones()
        self.counters = Counters()
        self._tickets_before = self._tickets.given
        self._met.clear()
        self.projects.reset_peaks()

    def totals(self) -> dict[str, Any]:
        """Return what was counted since the start or the last reset."""
        counters = self.counters
        tickets = self._tickets.given - self._tickets_before
        return {
            "requests": counters.send_requests + counters.receipt_requests,
            "sendRequests": counters.send_requests,
            "receiptRequests": counters.receipt_requests,
            "messages": counters.messages,
            "delivered": self.phones.delivered,
            "duplicates": self.phones.duplicates,
            "phones": len(self.phones),
            "tickets": tickets + counters.error_tickets,
            "errorTickets": counters.error_tickets,
            "receiptsAsked": counters.receipts_asked,
            "receiptsGiven": counters.receipts_given,
            "rateLimited": counters.rate_limited,
            "peakConnections": self.projects.peaks(),
        }

    def send(self, body: bytes, authorisation: bytes) -> Exchange:
        """Take a send request as far as its faults let it come; raises Refused.

        The request counts as in flight for its project until `left` is called for it.
        """
        self.counters.send_requests += 1
        self._authorise(authorisation)
        recipients, lone = messages.read_send(body)
        self.counters.messages += len(recipients)
        marked = [token for token, _ in recipients if "!" in token]
        project = _one_project(recipients) if marked else tokens.DEFAULT_PROJECT
        self._keep_to_the_rate(project, len(recipients))
        self.projects.enter(project)
        fault = self._request_fault(marked, project) if marked or self.rules else None
        if fault is not None and not fault.delivers:
            return Exchange(spoil(fault, Answer(200, b"")), fault, project, len(recipients))
        spoiled = self._spoiled(recipients, project) if marked or self.rules else {}
        if not messages.all_fit(body, len(recipients)):
            for index, (_, message) in enumerate(recipients):
                if index not in spoiled and messages.is_too_big(message):
                    spoiled[index] = _TOO_BIG
        tickets = self._deliver(recipients, spoiled)
        if fault is not None and fault.value == "short":
            del tickets[-1]
        text = tickets[0] if lone and tickets else f"[{','.join(tickets)}]"
        answer = Answer(200, f'{{"data":{text}}}'.encode())
        return Exchange(answer if fault is None else spoil(fault, answer), fault, project, len(recipients))

    def left(self, exchange: Exchange) -> None:
        """Take note that a request is no longer in flight."""
        if exchange.project is not None:
            self.projects.leave(exchange.project)

    def receipts(self, body: bytes, authorisation: bytes) -> Exchange:
        """Answer which receipts are there; raises Refused."""
        self.counters.receipt_requests += 1
        self._authorise(authorisation)
        ids = messages.read_receipt_ids(body)
        self.counters.receipts_asked += len(ids)
        fault = self.rules.pick(("request",), None, on="receipts") if self.rules else None
        found = self._tickets.receipts(ids, self.settings.receipt_delay_s)
        if fault is not None and fault.value == "short" and found:
            del found[next(reversed(found))]
        self.counters.receipts_given += len(found)
        answer = answers.in_json({"data": found})
        return Exchange(answer if fault is None else spoil(fault, answer), fault, None, len(ids))

    def _authorise(self, authorisation: bytes) -> None:
        expected = self.settings.access_token
        if expected is None:
            return
        if not authorisation:
            raise answers.unauthorised(401)
        scheme, _, given = authorisation.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), expected.encode()):
            raise answers.unauthorised()

    def _keep_to_the_rate(self, project: str, count: int) -> None:
        rate = self.settings.rate_per_s
        wait_s = self.projects.take(project, count, rate, time.monotonic())
        if wait_s:
            self.counters.rate_limited += 1
            raise answers.too_many_requests(rate, wait_s)

    def _request_fault(self, marked: list[str], project: str) -> Fault | None:
        for token in marked:
            fault = self._met.pick(token, ("request",))
            if fault is not None:
                return fault
        return self.rules.pick(("request",), project) if self.rules else None

    def _spoiled(self, recipients: Recipients, project: str) -> dict[int, Fault]:
        """Return the faults of single messages, by their place in the request."""
        found = {}
        for index, (token, _) in enumerate(recipients):
            fault = self._met.pick(token, _OF_MESSAGES) if "!" in token else None
            if fault is None and self.rules:
                fault = self.rules.pick(_OF_MESSAGES, project)
            if fault is not None:
                found[index] = fault
        return found

    def _deliver(self, recipients: Recipients, spoiled: dict[int, Fault]) -> list[str]:
        """Let the phones receive what is not spoiled, and return the tickets, in JSON."""
        deliver, keep, now = self.phones.deliver, self.settings.keep_messages, time.time()
        if not spoiled:
            for token, message in recipients:
                deliver(token, message, now, keep)
            return [f'{{"status":"ok","id":"{each}"}}' for each in self._tickets.issue(len(recipients))]
        return [self._deliver_one(*recipient, spoiled.get(index)) for index, recipient in enumerate(recipients)]

    def _deliver_one(self, token: str, message: messages.Message, fault: Fault | None) -> str:
        if fault is not None and fault.kind == "ticket":
            self.counters.error_tickets += 1
            return json.dumps(error_result(fault.value, token), separators=(",", ":"))
        ticket_id = self._tickets.issue(1)[0]
        if fault is not None:
            self._tickets.mark(ticket_id, fault, token)
        if fault is None or fault.kind == "silence":
            self.phones.deliver(token, message, time.time(), self.settings.keep_messages)
        return f'{{"status":"ok","id":"{ticket_id}"}}'


def _one_project(recipients: Recipients) -> str:
    """Return the project all recipients belong to, or refuse the request."""
    by_project: dict[str, list[str]] = {}
    for token, _ in recipients:
        by_project.setdefault(tokens.project_of(token), []).append(token)
    if len(by_project) > 1:
        raise answers.too_many_projects(by_project)
    return next(iter(by_project))
