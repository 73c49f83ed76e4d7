"""Faults of the push services: down, slow, throttling, in doubt, or refusing our credentials."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from chaos.fault_context import FaultContext
from chaos.system import RATE_PER_S
from relevo.client import verbs
from relevo.client.values import Event, Installation
from relevo.core.known_services import LABELS, NATIVE, listed
from relevo.sandbox import push_service

_TURNED_AWAY = """
select (select count(*) from relevo.push_requests r cross join unnest(r.ids)
         where r.project like %(service)s and r.outcome not in ('answered', 'unclear'))
     + (select count(*) from relevo.failed_attempts f join relevo.push_requests r on r.id = f.request_id
         where r.project like %(service)s and f.found_by = 'dispatch' and r.outcome = 'answered')
"""
_IN_DOUBT = """
select count(*) from relevo.failed_attempts f join relevo.push_requests r on r.id = f.request_id
 where r.project like %(service)s and f.found_by = 'dispatch'
"""
_PHONES = """
select installation_id from relevo.device_installations
 where provider = 'expo' and invalidated_at is null and owner like 'owner-%'
"""
_GONE_BROWSERS = """
select installation_id, owner from relevo.device_installations where provider = 'webpush' and invalidated_at is not null
"""
BURST_S = 45
"""How long the rate needs for a burst: longer than the checker's windows."""
REFUSED = f"{listed(LABELS[name] for name in NATIVE)} refuses credentials"


def _befall(context: FaultContext, *, fault: str, share: float = 1.0) -> None:
    context.system.sandbox.add_fault(fault, share=share, seconds=1.0 + context.chance.random() * 2)
    time.sleep(2)


def _befall_native(context: FaultContext, *, fault: str, moment: str) -> None:
    """Inject a fault into one of the services that take each message by itself, and another if it met no message."""
    for service in context.chance.sample(NATIVE, len(NATIVE)):
        if met := _befall_service(context, service, fault):
            context.hit(moment, met)
            return


def _befall_service(context: FaultContext, service: str, fault: str) -> int:
    """Inject a fault into a service; return how many messages it met."""
    word = push_service.of(service).trial.refused if fault == "refused credentials" else fault
    query = _IN_DOUBT if fault.endswith("-delivered") else _TURNED_AWAY
    [(before,)] = context.system.ask(query, service=f"{service}::%")
    share = (
        1.0 if fault == "refused credentials" else 0.4
    )  # a service that refuses once is asked again with a new token
    context.system.sandbox.add_fault(word, service=service, share=share, seconds=2.0)
    time.sleep(3.5)
    [(after,)] = context.system.ask(query, service=f"{service}::%")
    return int(after - before)


def burst(context: FaultContext) -> None:
    """Enqueue more for phones of one project than its rate lets through in a while, unless much is due already."""
    if context.system.is_behind:
        time.sleep(2)
        return
    chosen = context.chance.randrange(10**9)
    phones = [phone for (phone,) in context.system.ask(_PHONES)]
    with context.system.connect() as conn:
        for number in range(RATE_PER_S * BURST_S // max(1, len(phones))):
            key = f"burst-{chosen}-{number}"
            made = Event("order", key, "Order", "One of many", audience=phones)
            context.acknowledged.note(
                "enqueued", event=verbs.enqueue(conn, made).event_id, key=key, owner=None, by="Python", once=False
            )
    time.sleep(5)


def call_gone(context: FaultContext) -> None:
    """Call some phones gone whose apps register other tokens a little later, as the writers do for Expo's."""
    context.system.sandbox.add_fault("DeviceNotRegistered", share=0.3, seconds=2.0)
    context.system.sandbox.add_fault("410", service="webpush", share=0.3, seconds=2.0)
    time.sleep(2.5)
    with context.system.connect() as conn:
        for phone, owner in context.system.ask(_GONE_BROWSERS):
            name = f"back-{context.chance.randrange(10**9)}"
            verbs.register(
                conn,
                Installation(
                    context.system.sandbox.subscription(name),
                    installation_id=phone,
                    provider="webpush",
                    platform="web",
                    owner=owner,
                ),
            )


KINDS: dict[str, Callable[[FaultContext], None]] = {
    "Expo down": partial(_befall, fault="503"),
    "Expo took it and said 500": partial(_befall, fault="500-delivered", share=0.5),
    "Expo took it and hung up": partial(_befall, fault="reset-delivered", share=0.5),
    "Expo slow": partial(_befall, fault="slow=1", share=0.5),
    "Expo throttles": partial(_befall, fault="429", share=0.2),
    "more due than the rate": burst,
    "phones called gone": call_gone,
    "Expo refuses messages": partial(_befall, fault="MessageTooBig", share=0.3),
    "Expo refuses credentials": partial(_befall, fault="401", share=1.0),
    REFUSED: partial(_befall_native, fault="refused credentials", moment="messages refused for their credentials"),
    "GOAWAY": partial(_befall_native, fault="goaway", moment="messages that a GOAWAY turned away"),
    "GOAWAY after it was taken": partial(
        _befall_native, fault="goaway-delivered", moment="messages in doubt after a GOAWAY"
    ),
    "stream refused": partial(_befall_native, fault="refused", moment="messages whose stream was refused"),
    "service hung up": partial(
        _befall_native, fault="reset-delivered", moment="messages in doubt after their connection ended"
    ),
}
