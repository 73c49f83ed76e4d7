"""What owners chose of categories: it is held to by every way of fan-out, by the claim, and right before the request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from relevo.client import consent, verbs
from relevo.client.values import Event, Installation, Matching, Owners
from support.sending_worker import Relay, token

AUDIENCES: dict[str, Any] = {"everyone": "everyone", "matching": Matching(), "owners": Owners("ana", "eva", "ida")}


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with a phone each of ana, eva and ida, and categories of every rule."""
    made: Relay = relay()
    for rule in consent.RULES:
        consent.set_category(made.conn, rule, rule=rule)
    for name in ("ana", "eva", "ida"):
        made.phones[name] = verbs.register(made.conn, Installation(token(name), owner=name))
    return made


def send(worker: Relay, audience: Any, **more: Any) -> None:
    """Enqueue an event and have it sent."""
    key = str(len(worker.rows("select id from relevo.notification_events")))
    verbs.enqueue(worker.conn, Event("notice", key, title="Hello", audience=audience, **more))
    worker.fan_out()
    worker.dispatch()


def received(worker: Relay) -> list[int]:
    """Return how many pushes ana, eva and ida got."""
    return [worker.received(name) for name in ("ana", "eva", "ida")]


GETS = {None: [1, 1, 1], "other": [1, 1, 1], "on": [0, 1, 1], "off": [0, 0, 1], "mandatory": [1, 1, 1]}


@pytest.mark.parametrize("audience", AUDIENCES.values(), ids=AUDIENCES)
def test_who_gets_a_category(worker: Relay, audience: Any) -> None:
    """What is on goes to all but who refused it, what is off to who accepted it, what is mandatory to all, opt-outs or not."""
    verbs.register(worker.conn, Installation(token("ana"), worker.phones["ana"], opt_outs=["mandatory"]))
    for name in ("on", "off"):
        consent.choose(worker.conn, name, owner="ana", wanted=False)
        consent.choose(worker.conn, name, owner="ida", wanted=True)
    for category, expected in GETS.items():
        worker.sandbox.reset()
        send(worker, audience, category=category)
        assert received(worker) == expected, category


def test_an_opt_out_of_one_phone_stays(worker: Relay) -> None:
    """Whoever accepted a category gets it on all phones but the one that opted out."""
    verbs.register(worker.conn, Installation(token("ida"), worker.phones["ida"], opt_outs=["off"]))
    worker.phones["second"] = verbs.register(worker.conn, Installation(token("second"), owner="ida"))
    consent.choose(worker.conn, "off", owner="ida", wanted=True)
    send(worker, Owners("ida"), category="off")
    assert (worker.received("ida"), worker.received("second")) == (0, 1)


@pytest.mark.parametrize("owner_first", [True, False])
@pytest.mark.parametrize(("category", "wanted"), [("on", False), ("off", True)])
def test_a_new_phone_has_its_owners_choices(worker: Relay, owner_first: bool, category: str, wanted: bool) -> None:
    """A choice holds for phones that are registered later, or come to the owner later, and no more for the next owner."""
    consent.choose(worker.conn, category, owner="zoe", wanted=wanted)
    new = Installation(token("new"), owner="zoe" if owner_first else None)
    worker.phones["new"] = verbs.register(worker.conn, new)
    verbs.register(worker.conn, Installation(token("new"), worker.phones["new"], owner="zoe"))
    send(worker, "everyone", category=category)
    assert worker.received("new") == wanted
    verbs.register(worker.conn, Installation(token("new"), worker.phones["new"], owner="max"))
    send(worker, "everyone", category=category)
    assert worker.received("new") == 1, "what was chosen before is the former owner's"


def test_a_choice_between_fan_out_and_claim(worker: Relay) -> None:
    """Refused after fan-out, it is not sent; the delivery says by whose choice."""
    verbs.enqueue(worker.conn, Event("notice", "1", title="Hello", audience="everyone", category="on"))
    worker.fan_out()
    consent.choose(worker.conn, "on", owner="ana", wanted=False)
    worker.dispatch()
    assert received(worker) == [0, 1, 1]
    assert (worker.delivery("ana")["status"], worker.delivery("ana")["last_error_code"]) == ("skipped", "refused")


def test_a_category_that_became_off(worker: Relay) -> None:
    """Switched off after fan-out, it waits for nobody: only who accepted it gets it."""
    consent.choose(worker.conn, "on", owner="ida", wanted=True)
    verbs.enqueue(worker.conn, Event("notice", "1", title="Hello", audience="everyone", category="on"))
    worker.fan_out()
    consent.set_category(worker.conn, "on", rule="off")
    worker.dispatch()
    assert received(worker) == [0, 0, 1]
    assert worker.delivery("eva")["last_error_code"] == "not_accepted"


def test_a_blocked_owner_gets_nothing(worker: Relay) -> None:
    """Blocked, an owner gets nothing, mandatory or not, on phones old and new; unblocked, everything again."""
    assert consent.block(worker.conn, owner="ana", reason="asked by mail") == 1
    worker.phones["second"] = verbs.register(worker.conn, Installation(token("second"), owner="ana"))
    send(worker, "everyone", category="mandatory")
    assert (worker.received("ana"), worker.received("second")) == (0, 0)
    [phone, _] = verbs.list_installations(worker.conn, owner="ana")
    assert (phone.receives, phone.why_not) == (False, "owner blocked")
    assert consent.unblock(worker.conn, owner="ana") == 2
    send(worker, "everyone")
    assert (worker.received("ana"), worker.received("second")) == (1, 1)


def test_why_not(worker: Relay) -> None:
    """The rule that holds a push back is named, with its category, for events that are there and for drafts."""
    consent.choose(worker.conn, "on", owner="ana", wanted=False)
    send(worker, "everyone", category="on")
    told = {name: explained(worker, worker.phones[name], "on") for name in ("ana", "eva")}
    assert told["ana"] == ("refused", "Its owner refused the category on.")
    assert told["eva"][0] == "everyone"
    rule, reason = explained(worker, worker.phones["eva"], "off")
    assert (rule, reason) == ("not_accepted", "Its owner has not accepted the category off, which is off until then.")


def explained(worker: Relay, phone: UUID, category: str) -> tuple[str, str]:
    """Return the rule by which a phone would get an event of a category, or not, and its sentence."""
    draft = Event("notice", "draft", title="Hello", audience="everyone", category=category)
    found = verbs.explain(worker.conn, draft, phone)
    return found.rule, found.reason


def test_previews_count_them(worker: Relay) -> None:
    """A preview reaches those who want it."""
    consent.choose(worker.conn, "on", owner="ana", wanted=False)
    for audience in AUDIENCES.values():
        draft = Event("notice", "draft", title="Hello", audience=audience, category="on")
        assert verbs.preview(worker.conn, draft).count == 2
