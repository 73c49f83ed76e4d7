"""The state behind the sandbox, and what the push API does to it; without any HTTP."""

from __future__ import annotations

import hmac
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from relevo.core.known_services import EXPO, NATIVE, SERVICES
from relevo.sandbox import answers, messages, push_service
from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.faults import tokens
from relevo.sandbox.faults.expo import Exchange, Fault, FaultRules, Kind, Place, error_result, spoil
from relevo.sandbox.messages import Recipients
from relevo.sandbox.phone_apps import PhoneApp
from relevo.sandbox.phones import Phone, Phones
from relevo.sandbox.projects import Projects
from relevo.sandbox.settings import Settings
from relevo.sandbox.tickets import Clock, Tickets
from relevo.sandbox.waiting import Kept

_OF_MESSAGES: tuple[Kind, ...] = ("ticket", "receipt", "silence")
_TOO_BIG = Fault("receipt-MessageTooBig", "receipt", "MessageTooBig")  # Expo takes it, and tells by the receipt


class NativeServices(Protocol):
    """The parts of the running native push services that admin calls and pages need."""

    def settings(self) -> dict[str, str]:
        """Return the settings by which Relevo sends to these services."""

    def make_token(self, given: Any) -> str:
        """Make a token for an admin call."""

    def expire_access_tokens(self) -> None:
        """Expire every access token that was given out."""


class SandboxState:
    """Phones, tickets, projects and faults, changed from one thread only; each of them is bounded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.services: NativeServices | None = None
        self.tell: Callable[[str], None] | None = None
        self.rules = FaultRules()
        self.rules_of = {name: FaultRules() for name in SERVICES} | {EXPO: self.rules}
        self.projects = Projects()
        self._clock = Clock(settings.time_scale)
        self._tickets = Tickets(self._clock)
        self._tickets_before = 0
        self.met = tokens.Met()
        self.phones = Phones()
        self._counted: Counter[str] = Counter()
        """Further counts, by the names that totals have."""
        self.answered: Counter[tuple[str, int]] = Counter()
        """How many messages the native push services answered, by service and status."""

    def change(self, changes: Any) -> None:
        """Change settings from now on."""
        self.settings = self.settings.changed(changes)
        self._clock.set_scale(self.settings.time_scale)

    def add_faults(self, given: list[Any]) -> None:
        """Put faults into force, all of them or none; raises InvalidInputError."""
        for service, rule in [push_service.make_rule(each) for each in given]:
            self.rules_of[service].add(rule)

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults in force; those that are not Expo's name their service."""
        return [
            rule if name == EXPO else {"service": name} | rule
            for name, rules in self.rules_of.items()
            for rule in rules.as_json()
        ]

    def clear_faults(self) -> None:
        """Forget the faults put into force."""
        for rules in self.rules_of.values():
            rules.clear()

    def switch(self, token: str, *, on: bool) -> Phone:
        """Switch a phone off, or on again."""
        key = push_service.phone_key(token)
        return self.phones.switch(key, push_service.kind_of(key), time.time(), self.settings.keep_messages, on=on)

    def install(self, token: str, app: PhoneApp) -> Phone:
        """Put an app on a phone."""
        key = push_service.phone_key(token)
        return self.phones.install(key, push_service.kind_of(key), app)

    def reset(self) -> None:
        """Forget the phones and start counting anew; tickets keep their receipts, settings and faults stay."""
        self.phones = Phones()
        self._counted.clear()
        self.answered.clear()
        self._tickets_before = self._tickets.given
        self.met.clear()
        self.projects.reset_peaks()

    def totals(self) -> dict[str, Any]:
        """Return what was counted since the start or the last reset."""
        counted = self._counted
        tickets = self._tickets.given - self._tickets_before
        others = self.answered.total()
        services = {
            name: {str(status): count for (service, status), count in sorted(self.answered.items()) if service == name}
            for name in NATIVE
        }
        return ({} if self.services is None else {"services": services}) | {
            "requests": counted["sendRequests"] + counted["receiptRequests"] + others,
            "sendRequests": counted["sendRequests"],
            "receiptRequests": counted["receiptRequests"],
            "messages": counted["messages"] + others,
            "delivered": self.phones.delivered,
            "duplicates": self.phones.duplicates,
            "phones": len(self.phones),
            "tickets": tickets + counted["errorTickets"],
            "errorTickets": counted["errorTickets"],
            "receiptsAsked": counted["receiptsAsked"],
            "receiptsGiven": counted["receiptsGiven"],
            "rateLimited": counted["rateLimited"],
            "peakConnections": self.projects.peaks(),
        }

    def fault(self, service: str, token: str, named: tuple[Fault, ...], project: str | None) -> Fault | None:
        """Return the fault that a request to a device meets: what its token names, else what a rule says."""
        return self.met.pick(token, named, ("request",)) or self.rule(service, project)

    def rule(self, service: str, project: str | None, on: Place = "send") -> Fault | None:
        """Return the fault of a rule that a request meets."""
        return self.rules_of[service].pick(("request",), project, on)

    def deliver(self, service: str, token: str, message: messages.Message, kept: Kept) -> None:
        """Hand a message to a phone."""
        self.phones.deliver(token, message, time.time(), self.settings.keep_messages, kind=service, kept=kept)

    def send(self, body: bytes, authorisation: str) -> Exchange:
        """Take a send request as far as its faults let it come; raises Refused.

        The request counts as in flight for its project until `left` is called for it.
        """
        self._counted["sendRequests"] += 1
        self._authorise(authorisation)
        recipients, lone = messages.read_send(body)
        self._counted["messages"] += len(recipients)
        marked = [token for token, _ in recipients if "!" in token]
        project = _one_project(recipients) if marked else tokens.DEFAULT_PROJECT
        self._keep_to_the_rate(project, len(recipients))
        self.projects.enter(project)
        fault = self._request_fault(marked, project) if marked or self.rules else None
        if fault is not None and not fault.delivers:
            return Exchange(spoil(fault, HttpResponse(200, b"")), fault, project, len(recipients))
        spoiled = self._spoiled(recipients, project) if marked or self.rules else {}
        if not messages.all_fit(body, len(recipients)):
            for index, (_, message) in enumerate(recipients):
                if index not in spoiled and messages.is_too_big(message):
                    spoiled[index] = _TOO_BIG
        tickets = self._deliver(recipients, spoiled)
        if fault is not None and fault.value == "short":
            del tickets[-1]
        text = tickets[0] if lone and tickets else f"[{','.join(tickets)}]"
        answer = HttpResponse(200, f'{{"data":{text}}}'.encode())
        return Exchange(answer if fault is None else spoil(fault, answer), fault, project, len(recipients))

    def left(self, exchange: Exchange) -> None:
        """Take note that a request is no longer in flight."""
        if exchange.project is not None:
            self.projects.leave(exchange.project)

    def receipts(self, body: bytes, authorisation: str) -> Exchange:
        """Answer which receipts are there; raises Refused."""
        self._counted["receiptRequests"] += 1
        self._authorise(authorisation)
        ids = messages.read_receipt_ids(body)
        self._counted["receiptsAsked"] += len(ids)
        fault = self.rules.pick(("request",), None, on="receipts") if self.rules else None
        found = self._tickets.receipts(ids, self.settings.receipt_delay_s)
        if fault is not None and fault.value == "short" and found:
            del found[next(reversed(found))]
        self._counted["receiptsGiven"] += len(found)
        answer = answers.in_json({"data": found})
        return Exchange(answer if fault is None else spoil(fault, answer), fault, None, len(ids))

    def _authorise(self, authorisation: str) -> None:
        expected = self.settings.access_token
        if expected is None:
            return
        if not authorisation:
            raise answers.unauthorised(401)
        scheme, _, given = authorisation.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), expected.encode()):
            raise answers.unauthorised()

    def _keep_to_the_rate(self, project: str, count: int) -> None:
        rate = self.settings.rate_per_s
        wait_s = self.projects.take(project, count, rate, time.monotonic())
        if wait_s:
            self._counted["rateLimited"] += 1
            raise answers.too_many_requests(rate, wait_s)

    def _request_fault(self, marked: list[str], project: str) -> Fault | None:
        for token in marked:
            fault = self.met.pick(token, tokens.words(token), ("request",))
            if fault is not None:
                return fault
        return self.rules.pick(("request",), project) if self.rules else None

    def _spoiled(self, recipients: Recipients, project: str) -> dict[int, Fault]:
        """Return the faults of single messages, by their place in the request."""
        found = {}
        for index, (token, _) in enumerate(recipients):
            fault = self.met.pick(token, tokens.words(token), _OF_MESSAGES) if "!" in token else None
            if fault is None and self.rules:
                fault = self.rules.pick(_OF_MESSAGES, project)
            if fault is not None:
                found[index] = fault
        return found

    def _deliver(self, recipients: Recipients, spoiled: dict[int, Fault]) -> list[str]:
        """Deliver messages without a fault to the phones, and return the tickets, in JSON."""
        deliver, keep, now = self.phones.deliver, self.settings.keep_messages, time.time()
        if not spoiled:
            for token, message in recipients:
                deliver(token, message, now, keep)
            return [f'{{"status":"ok","id":"{each}"}}' for each in self._tickets.issue(len(recipients))]
        return [self._deliver_one(*recipient, spoiled.get(index)) for index, recipient in enumerate(recipients)]

    def _deliver_one(self, token: str, message: messages.Message, fault: Fault | None) -> str:
        if fault is not None and fault.kind == "ticket":
            self._counted["errorTickets"] += 1
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
