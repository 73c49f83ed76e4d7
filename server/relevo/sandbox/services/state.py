"""What the three services share: which fault a request meets, what a phone gets, how much was counted."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from relevo.core.known_services import NATIVE
from relevo.sandbox.answers import Answer
from relevo.sandbox.faults import Fault, Place
from relevo.sandbox.services import faults
from relevo.sandbox.services.credentials import Credentials
from relevo.sandbox.services.device_tokens import Device
from relevo.sandbox.services.exchange import Outcome
from relevo.sandbox.state import SandboxState
from relevo.sandbox.waiting import Kept


class State:
    """The sandbox's state, and the credentials that its services verify."""

    def __init__(self, sandbox: SandboxState, credentials: Credentials) -> None:
        self.sandbox = sandbox
        self.credentials = credentials
        self.counted: Counter[tuple[str, int]] = Counter()

    def totals(self) -> dict[str, dict[str, int]]:
        """Return how many messages each service answered, by status."""
        told: dict[str, dict[str, int]] = {service: {} for service in NATIVE}
        for (service, status), count in sorted(self.counted.items()):
            told[service][str(status)] = count
        return told

    def fault(self, service: str, token: str, named: tuple[Fault, ...], project: str | None) -> Fault | None:
        """Return the fault that a request to a device meets: what its token names, else what a rule says."""
        found = self.sandbox.met.pick(token, named, ("request",)) if named else None
        return found or self.rule(service, project)

    def rule(self, service: str, project: str | None, on: Place = "send") -> Fault | None:
        """Return the fault of a rule that a request meets."""
        rules = self.sandbox.rules_of[service]
        return rules.pick(("request",), project, on) if rules else None

    def deliver(self, service: str, key: str, message: dict[str, Any], kept: Kept) -> None:
        """Hand a message to a phone."""
        keep = self.sandbox.settings.keep_messages
        self.sandbox.phones.deliver(key, message, time.time(), keep, kind=service, kept=kept)


def spoiled(service: str, fault: Fault | None, good: Answer, device: Device | None = None) -> Outcome:
    """Return a good answer as a fault leaves it, with the headers that the device's token names."""
    answer = (faults.code_answer(service, fault) if fault is not None else None) or good
    if fault is not None and answer is not good and device is not None:
        headers = answer.headers | {name: value for name, value in good.headers.items() if name == "apns-id"}
        for each in device.faults:
            if each.kind == "header":
                headers["retry-after"] = each.value
        answer = Answer(answer.status, answer.body, answer.content_type, headers)
    return Outcome(answer, fault)
