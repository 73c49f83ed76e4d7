"""Deliveries belong to the owner they were made for: a phone that is another's by now does not get them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo.client import quiet, verbs
from relevo.client.values import Installation, Matching, Owners, TenderPreference
from relevo.operators import actions, owners
from relevo.operators.actions import DeadLetters
from support.sending_worker import Relay, token


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with a phone of ana, who has quiet hours now and for two hours, and one of eva, who has none."""
    made: Relay = relay()
    begins, ends = (datetime.now(UTC) + timedelta(hours=each) for each in (-1, 2))
    quiet.set_quiet(made.conn, [f"{begins:%H:%M}-{ends:%H:%M}"], owner="ana", zone="UTC")
    for name in ("ana", "eva"):
        made.phones[name] = verbs.register(made.conn, Installation(token(name), owner=name))
    return made


def pass_on(worker: Relay, owner: str | None, **more: Any) -> None:
    """Register ana's phone for another owner or for nobody, under the id and with the token that it has."""
    phone = {"installation_id": str(worker.phones["ana"]), "token": worker.installation("ana")["token"], "owner": owner}
    worker.conn.execute("select relevo.register_installation(%s)", [Jsonb(phone | more)])


def by_log_out(worker: Relay, owner: str | None) -> None:
    """Log out, then register, as the kits do."""
    verbs.unregister(worker.conn, worker.phones["ana"])
    pass_on(worker, owner)


def by_many(worker: Relay, owner: str | None) -> None:
    """Register with others, as an import does."""
    known = Installation(token("ana"), installation_id=worker.phones["ana"], owner=owner)
    verbs.register_many(worker.conn, [known, Installation(token("new"), owner="new")])


def by_another_project(worker: Relay, owner: str | None) -> None:
    """Move the phone to another project, and to the other owner there."""
    pass_on(worker, owner, project="other")


def outcome(worker: Relay) -> tuple[str, str | None, int]:
    """Return what became of the last delivery to ana's phone, and how many pushes the phone got."""
    found = worker.delivery("ana")
    return found["status"], found["last_error_code"], worker.received("ana")


def audience_of(worker: Relay, name: str) -> Any:
    """Return an audience that ana's phone is in."""
    by_name = {"owner": Owners("ana"), "phone": [worker.phones["ana"]], "matching": Matching()}
    return by_name.get(name, "everyone")


def titles(worker: Relay, owner: str) -> list[str]:
    """Return the titles in an owner's inbox."""
    return [item.title for item in relevo.inbox(worker.conn, owner=owner).items]


@pytest.mark.parametrize("audience", ["owner", "phone", "matching"])
@pytest.mark.parametrize("heir", ["bea", None])
def test_what_waits_for_the_end_of_quiet_hours(worker: Relay, audience: str, heir: str | None) -> None:
    """A personal or matching event that waits for ana goes neither to bea nor to nobody, and stays in ana's inbox alone."""
    worker.enqueue(audience=audience_of(worker, audience), title="Your result")
    worker.fan_out()
    pass_on(worker, heir)
    worker.travel(hours=3)
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)
    assert titles(worker, "ana") == ["Your result"]
    if heir is not None:
        assert titles(worker, heir) == []


@pytest.mark.parametrize("way", [by_log_out, by_many, by_another_project])
def test_every_way_to_another_owner(worker: Relay, way: Callable[[Relay, str | None], None]) -> None:
    """Log-out and log-in, many at once, another project: each way ends what waits for the former owner."""
    worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    way(worker, "bea")
    worker.travel(hours=3)
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)


def test_an_event_for_everyone_is_the_phones(worker: Relay) -> None:
    """An event for everyone still goes to the phone, whose ever it is, and stays in the first owner's inbox."""
    worker.enqueue(title="Fair today")
    worker.fan_out()
    pass_on(worker, "bea")
    worker.travel(hours=3)
    worker.dispatch()
    assert outcome(worker) == ("sent", None, 1)
    assert (titles(worker, "ana"), titles(worker, "bea")) == (["Fair today"], [])


@pytest.mark.parametrize("audience", ["owner", "phone"])
def test_a_phone_that_is_the_owners_again(worker: Relay, audience: str) -> None:
    """Ana lends the phone to bea, a worker looks, and she has it back before the push is due: it goes."""
    worker.enqueue(audience=audience_of(worker, audience))
    worker.fan_out()
    pass_on(worker, "bea")
    worker.dispatch()
    pass_on(worker, "ana")
    worker.dispatch()
    assert outcome(worker)[::2] == ("pending", 0)
    worker.travel(hours=3)
    worker.dispatch()
    assert outcome(worker) == ("sent", None, 1)


def test_a_phone_that_gets_its_first_owner(relay: Any) -> None:
    """What waits for a phone without owner goes to it after somebody logged in."""
    worker: Relay = relay()
    worker.tell("ana")
    pass_on(worker, "ana")
    worker.dispatch()
    assert outcome(worker) == ("sent", None, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_an_owner_whose_phone_is_moved_to_another_project(worker: Relay, shared: bool) -> None:
    """The push follows the phone if equal owner names are one person. Otherwise the phone belongs to somebody else now."""
    owners.share(worker.app.database, shared=shared)
    worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    pass_on(worker, "ana", project="other")
    worker.travel(hours=3)
    worker.drain()
    assert outcome(worker)[:2] == (("sent", None) if shared else ("skipped", "owner_changed"))


def test_an_event_for_a_phone_that_is_not_fanned_out_yet(relay: Any) -> None:
    """An event that names a phone is meant for the owner that the phone had when it was enqueued, however late it is due."""
    worker: Relay = relay()
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
    phones = [worker.phones["ana"], worker.phones["eva"]]
    worker.enqueue(audience=phones, title="Your result", scheduled_at=datetime.now(UTC) + timedelta(hours=1))
    pass_on(worker, "bea")
    worker.travel(hours=2)
    worker.fan_out()
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)
    assert worker.received("eva") == 1
    assert (titles(worker, "ana"), titles(worker, "bea")) == (["Your result"], [])


@pytest.mark.parametrize("audience", ["owner", "phone"])
def test_what_is_gathered_in_a_batch(relay: Any, audience: str) -> None:
    """A batch of ana's events is not told to bea, whether they name ana or the phone."""
    worker: Relay = relay()
    worker.phones["ana"] = verbs.register(worker.conn, Installation(token("ana"), owner="ana"))
    worker.conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('notice', 600)")
    for _ in range(2):
        worker.enqueue(audience=audience_of(worker, audience), title="Your result")
    worker.fan_out()
    pass_on(worker, "bea")
    worker.enqueue(audience=[worker.phones["ana"]], title="For bea")
    worker.fan_out()
    worker.travel(hours=1)
    worker.fan_out()
    worker.dispatch()
    assert [message["title"] for message in worker.messages("ana")] == ["For bea"]
    assert (titles(worker, "ana"), titles(worker, "bea")) == (["Your result"] * 2, ["For bea"])


def test_a_retry(relay: Any) -> None:
    """What the push service could not take is not tried again for the next owner."""
    worker: Relay = relay()
    worker.phones["ana"] = verbs.register(worker.conn, Installation(token("ana!MessageRateExceeded"), owner="ana"))
    worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    worker.dispatch()
    assert worker.delivery("ana")["status"] == "retryable"
    pass_on(worker, "bea")
    worker.travel(hours=3)
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)


def test_a_dead_letter_sent_anew(relay: Any) -> None:
    """A dead letter whose phone changed hands ends, though somebody sends it anew."""
    worker: Relay = relay(outbox_max_attempts=1)
    worker.phones["ana"] = verbs.register(worker.conn, Installation(token("ana!MessageTooBig*1"), owner="ana"))
    event = worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    worker.dispatch()
    assert worker.delivery("ana")["status"] == "failed"
    pass_on(worker, "bea")
    assert actions.redrive(worker.app.database, DeadLetters(event_id=event)) == 1
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)


def test_claimed_before_and_sent_after(relay: Any) -> None:
    """A phone that changes hands after its delivery was claimed is sent nothing; one that did not gets its push."""
    changed: list[bool] = []

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        if not changed:
            changed.append(True)
            pass_on(worker, "bea")
        return message

    worker: Relay = relay(composers={"notice": compose})
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
    worker.enqueue(audience=Owners("ana", "eva"))
    worker.fan_out()
    worker.drain()
    assert changed
    assert outcome(worker) == ("skipped", "owner_changed", 0)
    assert worker.received("eva") == 1


def test_a_worker_of_the_release_before(worker: Relay) -> None:
    """What 0.3.0 calls says the same: at the claim that the owner changed, before the request that the phone did."""
    worker.enqueue(audience=Owners("eva"))
    worker.fan_out()
    version = worker.installation("eva")["token_version"]
    asked = """select relevo.phones_unchanged_1(array[%s::uuid], array[%s::int], '{}', now()) as unchanged"""
    assert worker.rows(asked, worker.phones["eva"], version) == [{"unchanged": True}]
    given = {"installation_id": str(worker.phones["eva"]), "owner": "bea"}
    worker.conn.execute("select relevo.register_installation(%s)", [Jsonb(given)])
    assert worker.rows(asked, worker.phones["eva"], version) == [{"unchanged": False}]
    claimed = worker.rows(
        "select obstacles from relevo.claim_due_4(gen_random_uuid(), 'old', 'dispatch', 'default', 'bulk', 10, null, null, null, null, null, 3, 60000, null)"
    )
    assert claimed == [{"obstacles": ["owner_changed"]}]


def test_phones_of_before_the_upgrade(relay: Any) -> None:
    """The reaper gives phones that had their owner before the inbox of that owner; from then on the rule holds for them."""
    worker: Relay = relay()
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
    worker.conn.execute("update relevo.device_installations set inbox_id = null")
    worker.conn.execute("delete from relevo.inboxes")
    worker.reap()
    found = worker.rows(
        "select i.owner, b.owner as of_inbox from relevo.device_installations i left join relevo.inboxes b on b.id = i.inbox_id order by 1"
    )
    assert found == [{"owner": name, "of_inbox": name} for name in ("ana", "eva")]
    worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    pass_on(worker, "bea")
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)


def test_it_is_explained(worker: Relay) -> None:
    """Explanations name the rule, before the push is due and after."""
    event = worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    pass_on(worker, "bea")
    for _ in range(2):
        told = verbs.explain(worker.conn, event, worker.phones["ana"])
        assert (told.gets_it, told.rule) == (False, "owner_changed")
        worker.travel(hours=3)
        worker.dispatch()


def test_what_the_former_owner_asked_for(relay: Any) -> None:
    """Preferences, opt-outs and the phone's own quiet hours go with ana; what bea's registration names counts."""
    worker: Relay = relay()
    first, second = (
        verbs.register(worker.conn, Installation(token(name), owner="ana", opt_outs=["news"]))
        for name in ("ana", "two")
    )
    worker.phones["ana"] = first
    for phone in (first, second):
        verbs.set_preference(worker.conn, phone, "hospital", TenderPreference(region="Ñuble"))
        quiet.set_quiet(worker.conn, ["22:00-07:00"], installation_id=phone, zone="UTC")
    pass_on(worker, "bea", opt_outs=["ads"])
    rows = "select p.name, p.region from relevo.notification_preferences p where p.installation_id = %s"
    assert worker.rows(rows, first) == [{"name": "default", "region": None}]
    row = worker.installation("ana")
    assert (row["opt_outs"], row["quiet"], row["owner_quiet"], row["refused"]) == (["ads"], None, None, [])
    pass_on(worker, None)
    assert worker.installation("ana")["opt_outs"] == []
    worker.phones["two"] = second
    assert worker.installation("two")["opt_outs"] == ["news"]
    assert worker.installation("two")["quiet"] is not None


@pytest.mark.parametrize("owner", ["ana", None])
def test_an_event_of_a_project_that_its_phone_left(relay: Any, owner: str | None) -> None:
    """An event that names a project goes to no phone of another project, whoever has the phone; one without project goes."""
    worker: Relay = relay()
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=owner, project="shop"))
    of_project = worker.enqueue(audience=list(worker.phones.values()), project="shop")
    worker.fan_out()
    pass_on(worker, owner, project="bank")
    worker.drain()
    assert outcome(worker) == ("skipped", "project_changed", 0)
    assert worker.received("eva") == 1
    assert of_project != worker.enqueue(audience=[worker.phones["ana"]])
    worker.fan_out()
    worker.drain()
    assert outcome(worker) == ("sent", None, 1)


def test_a_phone_that_leaves_the_project_after_the_claim(relay: Any) -> None:
    """A phone that moves to another project between the claim and the request is sent nothing; the other one is."""
    moved: list[bool] = []

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        if not moved:
            moved.append(True)
            pass_on(worker, "ana", project="bank")
        return message

    worker: Relay = relay(composers={"notice": compose})
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name, project="shop"))
    worker.enqueue(audience=Owners("ana", "eva"), project="shop")
    worker.fan_out()
    worker.drain()
    assert moved
    assert outcome(worker) == ("skipped", "project_changed", 0)
    assert worker.received("eva") == 1


def test_the_next_owner_is_forgotten(relay: Any) -> None:
    """What came to ana stays in ana's inbox when bea, who has the phone now, is forgotten, or the phone is."""
    worker: Relay = relay()
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
        worker.enqueue(audience=Owners(name), title=f"For {name}")
    worker.fan_out()
    worker.drain()
    pass_on(worker, "bea")
    worker.enqueue(audience=Owners("bea"), title="For bea")
    worker.fan_out()
    worker.drain()
    assert verbs.forget(worker.conn, owner="bea") == 1
    assert [titles(worker, owner) for owner in ("ana", "eva", "bea")] == [["For ana"], ["For eva"], []]
    assert verbs.forget(worker.conn, worker.phones["eva"])
    assert [titles(worker, owner) for owner in ("ana", "eva")] == [["For ana"], []]


def test_the_owner_is_forgotten_between_the_claim_and_a_retry(relay: Any) -> None:
    """A push that was claimed for ana, and is due again after ana was forgotten, does not go to bea, who has the phone now."""
    worker: Relay = relay()
    for name in ("ana", "eva"):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
    worker.enqueue(audience=Owners("ana", "eva"), title="Your result")
    worker.fan_out()
    claim = worker.app.claims.claim("dispatch", "default", "bulk", now=worker.clock())
    assert relevo.forget(worker.conn, owner="ana") == 1
    again = Installation(token("ana"), installation_id=worker.phones["ana"], owner="bea")
    verbs.register(worker.conn, again)
    worker.app.claims.release(claim, worker.clock())
    worker.dispatch()
    assert outcome(worker) == ("skipped", "owner_changed", 0)
    assert worker.received("eva") == 1
    assert titles(worker, "bea") == []


TAKEN_OUT = {
    "this release": "select count(*) from relevo.take_from_queue(array[%(event)s::bigint], array[%(taken)s::bigint])",
    "the release before": """
with taken as (delete from relevo.due_chunks where %(taken)s = any (ids) returning due_chunks)
select relevo.put_back_1(t.due_chunks, array_remove((t.due_chunks).ids, %(taken)s),
                         array_remove((t.due_chunks).installations, (select installation_id from relevo.notification_deliveries where id = %(taken)s)))
  from taken t""",
}


@pytest.mark.parametrize("release", list(TAKEN_OUT))
def test_phones_that_are_left_in_a_chunk_keep_their_owners(relay: Any, release: str) -> None:
    """When one delivery is taken out of a chunk of three, the two others still belong to their own owners."""
    worker: Relay = relay()
    names = ("ana", "eva", "pia")
    for name in names:
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
    worker.enqueue(audience=Owners(*names))
    worker.fan_out()
    taken = worker.delivery("eva")
    worker.conn.execute(TAKEN_OUT[release], {"event": taken["notification_event_id"], "taken": taken["id"]})
    ((phones, inboxes),) = worker.conn.execute("select installations, inboxes from relevo.due_chunks").fetchall()
    assert dict(zip(phones, inboxes, strict=True)) == {
        worker.phones[name]: worker.installation(name)["inbox_id"] for name in ("ana", "pia")
    }


def test_a_former_owners_push_is_not_superseded_by_the_next_owners(relay: Any) -> None:
    """What the phone got for its next owner takes no place of what it was to get for the one before, who has it again by then; nor is it said to."""
    made = relay()
    made.phones["ana"] = verbs.register(made.conn, Installation(token("ana"), owner="ana"))
    first = made.enqueue(audience=Owners("ana"), collapse="score", title="for ana")
    made.fan_out()
    pass_on(made, "bea")
    made.enqueue(audience=Owners("bea"), collapse="score", title="for bea")
    made.fan_out()
    pass_on(made, "ana")
    told = verbs.explain(made.conn, first, made.phones["ana"])
    assert (told.gets_it, told.rule) == (True, "owner")
    made.dispatch()
    assert [message["title"] for message in made.messages("ana")] == ["for ana"]


def test_a_former_owners_batch_is_not_superseded_by_the_next_owners(relay: Any) -> None:
    """Nor does it take the place of what is gathered for the owner before."""
    made: Relay = relay()
    made.conn.execute(
        "insert into relevo.event_types (event_type, batch_window_s, batch_first) values ('notice', 600, true)"
    )
    made.phones["ana"] = verbs.register(made.conn, Installation(token("ana"), owner="ana"))
    for title in ("first", "gathered"):
        made.enqueue(audience=Owners("ana"), collapse="score", title=title)
        made.fan_out()
        made.drain()
    pass_on(made, "bea")
    made.enqueue(audience=Owners("bea"), collapse="score", title="for bea")
    made.fan_out()
    made.drain()
    pass_on(made, "ana")
    made.clock.travel(minutes=11)
    made.fan_out()
    made.drain()
    assert [message["title"] for message in made.messages("ana")] == ["first", "for bea", "gathered"]


def test_what_is_handled_in_one_project_goes_on_in_the_other(relay: Any) -> None:
    """Ana of the shop handles an event between the claim and the request: the phone of ana of the bank gets it all the same."""
    handled: list[bool] = []

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        if not handled:
            handled.append(True)
            made.conn.execute(
                "insert into relevo.event_completions (event_id, owner, project) values (%s, 'ana', 'shop')", [event]
            )
        return message

    made: Relay = relay(composers={"notice": compose})
    for name, project in (("ana", "shop"), ("bank", "bank")):
        made.phones[name] = verbs.register(made.conn, Installation(token(name), owner="ana", project=project))
    event = made.enqueue(audience=list(made.phones.values()))
    made.fan_out()
    made.drain()
    assert outcome(made) == ("cancelled", "handled_elsewhere", 0)
    assert made.received("bank") == 1
