"""An error that is not an outage is the trouble of the one thing it was met on: the rest goes on in the same run."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import relevo
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.core.model import ReceiptReply, Report, Ticket
from relevo.operators import fleet
from relevo.providers.expo.provider import Expo
from relevo.runtime.troubles import Thing, Troubles
from support import soak
from support.fake_http_server import Answer, FakeServer
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay

REFUSES = """
create function public.refuse_it() returns trigger language plpgsql as $f$
declare
  met record := coalesce(new, old);
begin
  if {} then
    raise exception 'this row cannot be written' using errcode = '{}';
  end if;
  return met;
end $f$;
create trigger refuse_it before {} for each row execute function public.refuse_it();
"""
CODES = {
    "its constraint": "23514",
    "its data": "22P02",
    "a trigger": "P0001",
    "a damaged page": "XX001",
    "its state": "55000",
}
CLAIMED = "delete on relevo.due_chunks"
JOURNALLED = "insert on relevo.push_requests"
RESERVED = "update on relevo.projects"
ASKED_FOR = "update on relevo.awaited_receipts"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def refuse(conn: psycopg.Connection[Any]) -> Iterator[Any]:
    """Refuse what is written to some rows until the test is over: `refuse("met.project = 'one'", CLAIMED)`."""

    def put(which: str, where: str, code: str = "23514") -> None:
        conn.execute(REFUSES.format(which, code, where).encode())

    yield put
    conn.execute("drop function if exists public.refuse_it() cascade")


def mend(worker: Relay) -> None:
    """Let everything be written again."""
    worker.conn.execute("drop function public.refuse_it() cascade")


def two_projects(relay: Any, phones: int = 30, **settings: object) -> Relay:
    """Return a relay with an event for the phones of two projects, that of project one due first."""
    worker: Relay = relay(**settings)
    worker.add_phones(5, "one-", project="one")
    worker.tell_everyone()
    worker.conn.execute("update relevo.due_chunks set due_at = now() - interval '1 hour'")
    ids = [worker.phones[name] for name in worker.add_phones(phones, "two-", project="two")]
    worker.enqueue(audience=ids)
    worker.fan_out()
    return worker


def states(worker: Relay, project: str) -> dict[str, int]:
    """Count the deliveries of a project per status."""
    counted = "select status, count(*)::int as n from relevo.deliveries where project = %s group by 1"
    return {row["status"]: row["n"] for row in worker.rows(counted, project)}


def told(worker: Relay) -> list[str]:
    """Return what operators are told that is left alone."""
    problems = fleet.status(worker.app.database, worker.app.settings).problems
    return [str(problem) for problem in problems if problem.code == "left_alone"]


def run_by_schedule(worker: Relay, cycle: str) -> Report:
    """Run a cycle as a scheduler does, which leaves alone what rests."""
    return worker.app.runner.run(worker.app.registry[cycle], "schedule")


PLACES = (RESERVED, CLAIMED, JOURNALLED)
PRODUCT = [(where, code) for where in PLACES for code in CODES]
PAIRS = list(zip(itertools.cycle(PLACES), CODES, strict=False))  # each code at one of the places


@pytest.mark.parametrize(("where", "code"), soak.cases(PAIRS, whole=PRODUCT))
def test_a_lane_that_meets_an_error_does_not_stop_another(relay, refuse, where: str, code: str) -> None:
    """Whatever PostgreSQL says of one project's rows: the other's pushes go out in the same run, which is partial and
    names the lane, and so does status; once it is mended nothing was spent or lost, and nobody is told any more."""
    worker = two_projects(relay, push_rate_per_second=600)
    refuse("met.project = 'one'", where, CODES[code])
    report = worker.dispatch()
    assert states(worker, "two") == {"sent": 30}
    assert (report.outcome, states(worker, "one")) == ("partial", {"pending": 5})
    assert "the bulk lane of one" in report.error
    assert "this row cannot be written" in report.error
    [sentence] = told(worker)
    assert "the bulk lane of project one has failed" in sentence
    assert "this row cannot be written" in sentence
    mend(worker)
    worker.dispatch()
    assert states(worker, "one") == {"sent": 5}
    worker.everyone_received(1)
    assert told(worker) == []


def test_a_lane_that_meets_an_error_is_left_alone_for_a_while(relay, refuse) -> None:
    """By its schedule a worker does not try it again and again; by hand it is tried at once."""
    worker = two_projects(relay)
    refuse("met.project = 'one'", CLAIMED)
    assert run_by_schedule(worker, "dispatch").counts["left_alone"] == 1
    report = run_by_schedule(worker, "dispatch")
    assert (report.outcome, report.counts) == ("idle", {})
    assert report.due_in_s is not None
    assert report.due_in_s > 1
    assert worker.dispatch().outcome == "partial"
    [row] = worker.rows("select failures, retry_at - last_at as pause from relevo.troubles")
    assert (row["failures"], row["pause"].total_seconds()) == (2, 10.0)


def expired_claims(worker: Relay) -> None:
    """Claim for each of three phones by itself, one after the other, and let all the leases run out."""
    for _ in range(3):
        assert worker.app.claims.claim("dispatch", "default", "bulk", limit=1) is not None
    worker.conn.execute(
        """update relevo.claims c set claimed_at = now() - interval '1 hour', leased_until = now() - interval '1 minute' + c.ids[1] * interval '1 ms'"""
    )


def test_a_claim_that_cannot_be_ended_does_not_hold_up_the_others(relay, refuse) -> None:
    """The oldest of three expired claims cannot be ended: the others are taken back by the same run, which is partial
    and names the one; it is left alone for a while, and taken back once it can be."""
    worker = relay()
    worker.tell("ana", "bob", "eva")
    expired_claims(worker)
    [oldest] = worker.rows("select token, ids[1] as id from relevo.claims order by leased_until limit 1")
    refuse(f"met.id = {oldest['id']}", "update on relevo.notification_deliveries")
    report = run_by_schedule(worker, "reaper")
    assert (report.outcome, report.counts["claims_reaped"]) == ("partial", 2)
    assert f"claim {oldest['token']}: " in report.error
    assert worker.claims() == 1
    [sentence] = told(worker)
    assert f"expired claim {oldest['token']} has failed" in sentence
    assert "left_alone" not in run_by_schedule(worker, "reaper").counts
    mend(worker)
    assert worker.reap().counts["claims_reaped"] == 1
    worker.dispatch()
    worker.everyone_received(1)


@pytest.mark.parametrize("table", ["event_progress", "push_minutes"])
def test_a_part_of_the_reaper_that_fails_keeps_no_other_from_being_done(relay, refuse, table: str) -> None:
    """Counts that cannot be folded stay, and the run says so; the lost workers are noticed all the same."""
    worker = relay()
    worker.tell("ana")
    worker.dispatch()
    worker.travel(days=1)
    refuse("true", f"insert on relevo.{table}")
    worker.conn.execute(
        """insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms)
           values ('dead', 'h', 1, '0.3.0', 'run', '{}', now() - interval '1 hour', now() - interval '1 hour', 60000)"""
    )
    report = worker.reap()
    assert (report.outcome, report.counts["workers_lost"]) == ("partial", 1)
    assert "reaper: fold_" in report.error


def test_receipts_of_one_project_that_cannot_be_claimed_stop_no_other(relay, refuse) -> None:
    """Its receipts wait; those of the other are asked for in the same run, which is partial and says why."""
    worker = two_projects(relay)
    worker.dispatch()
    refuse("met.project = 'one'", ASKED_FOR)
    report = worker.ask()
    assert (states(worker, "two"), states(worker, "one")) == ({"ok": 30}, {"sent": 5})
    assert report.outcome == "partial"
    assert "receipts of one: " in report.error
    assert "fetching the receipts of project one has failed" in told(worker)[0]
    mend(worker)
    worker.ask()
    assert (states(worker, "one"), told(worker)) == ({"ok": 5}, [])


def test_one_receipt_that_cannot_be_written_keeps_no_other_from_it(relay, refuse) -> None:
    """Asked about together with forty others, it is soon asked about alone: all the others are confirmed."""
    worker = relay()
    names = worker.add_phones(40)
    worker.register("odd")
    worker.tell_everyone()
    worker.dispatch()
    refuse(f"met.installation_id = '{worker.phones['odd']}'", "update on relevo.notification_deliveries")
    for _ in range(8):
        worker.ask()
        worker.travel(seconds=30)
    assert {worker.delivery(name)["status"] for name in names} == {"ok"}
    assert worker.delivery("odd")["status"] == "sent"
    mend(worker)
    worker.travel(hours=1)
    worker.ask()
    assert worker.states() == {"ok": 41}


def test_receipts_that_are_no_receipts_are_their_projects_trouble(relay, monkeypatch) -> None:
    """What an adapter of somebody's own says is read as it was meant where it can be, and else that project's trouble."""
    worker = relay()
    worker.tell("ana")
    worker.dispatch()
    ask = Expo.fetch_receipts
    monkeypatch.setattr(Expo, "fetch_receipts", lambda *_: {"ok": True})
    report = worker.ask()
    assert "receipts of default: " in report.error
    assert worker.states() == {"sent": 1}

    def numbered(self: Expo, ids: Any, *of: Any) -> ReceiptReply:
        said = ask(self, ids, *of)
        return ReceiptReply("answered", {key: Ticket("failed", code=5, message=7) for key in said.receipts})  # type: ignore[arg-type]

    monkeypatch.setattr(Expo, "fetch_receipts", numbered)
    worker.ask()
    assert (worker.delivery("ana")["status"], worker.delivery("ana")["last_error_code"]) == ("failed", "5")


@pytest.mark.parametrize("part", ["prune_rejects", "prune_audit", "retire"])
def test_a_part_of_cleanup_that_fails_keeps_no_other_from_being_done(relay, refuse, part: str) -> None:
    """Each part is done by itself and has its line in the run; the next night forgets what is mended."""
    worker = relay()
    conn = worker.conn
    conn.execute(
        """insert into relevo.worker_runs (cycle, trigger, worker_id, started_at, finished_at, outcome)
           select 'probe', 'manual', 'w', at, at, 'ok' from (select now() - interval '1 year' as at) t"""
    )
    conn.execute(
        "insert into relevo.audit_log (at, actor, face, action) values (now() - interval '5 years', 'a', 'cli', 'pause')"
    )
    conn.execute(
        """insert into relevo.ingest_rejects (source, place, reason, updated_at) values ('s', 'p', 'r', now() - interval '1 year')"""
    )
    if part == "retire":
        conn.execute(
            """insert into relevo.licitaciones (namespace, external_id, nombre, fingerprint, sources, created_at)
               values ('n', 'e', 'Puente', 'f', '{folder}', now() - interval '5 years')"""
        )
    where = {
        "prune_rejects": "delete on relevo.ingest_rejects",
        "prune_audit": "delete on relevo.audit_log",
        "retire": "delete on relevo.licitaciones",
    }
    refuse("true", where[part], "XX001")
    report = worker.run("cleanup")
    assert report.outcome == "partial"
    assert "this row cannot be written" in report.error
    assert report.counts["runs_pruned"] == 1
    for name, of in (("rejects_pruned", "prune_rejects"), ("audit_pruned", "prune_audit")):
        assert report.counts.get(name, 0) == (part != of)


def test_a_poison_row_does_not_keep_a_healthy_push_waiting(relay, refuse) -> None:
    """Beside a project that cannot be claimed and a claim that cannot be ended, an urgent push leaves by the same run."""
    worker = two_projects(relay, 1)
    refuse("met.project = 'one'", CLAIMED)
    for _ in range(3):
        worker.tell("ana", lane="urgent")
        report = run_by_schedule(worker, "dispatch")
        assert report.outcome in ("ok", "partial")
        assert worker.delivery("ana")["status"] == "sent"
    assert worker.received("ana") == 3


def test_a_dead_webhook_does_not_keep_a_healthy_push_waiting(relay, tmp_path: Path) -> None:
    """A webhook whose server never answers: pushes of a healthy project are sent while its request is still under way."""
    asked, go_on = threading.Event(), threading.Event()

    def never(_asked: Any) -> Answer:
        asked.set()
        go_on.wait(PATIENCE_S)
        return Answer(200)

    with FakeServer(never) as server:
        file = tmp_path / "webhooks.json"
        file.write_text(json.dumps({"billing": {"url": f"{server.url}/hook", "secret": SECRET}}))
        file.chmod(0o600)
        worker = relay(webhooks_file=file, http_allow_private="true", push_request_timeout_ms=20_000)
        verbs.register(worker.conn, Installation("billing", provider="webhook"))
        worker.register("ana")
        worker.tell_everyone()
        running = threading.Thread(target=worker.dispatch)
        running.start()
        assert asked.wait(PATIENCE_S)
        eventually(lambda: worker.delivery("ana")["status"] == "sent", "the phone of the same event")
        worker.tell("eva", lane="urgent")
        eventually(lambda: worker.delivery("eva")["status"] == "sent", "what comes while the webhook hangs")
        assert running.is_alive(), "the webhook's request is still under way"
        go_on.set()
        running.join(PATIENCE_S)


def test_a_subscription_whose_news_cannot_be_sent_holds_up_no_other(relay, refuse, tmp_path: Path) -> None:
    """The news of the other subscription go out by the same run of the reaper, which is partial and names the first."""
    with FakeServer(lambda _asked: Answer(200)) as server:
        file = tmp_path / "webhooks.json"
        file.write_text(
            json.dumps({name: {"url": f"{server.url}/{name}", "secret": SECRET} for name in ("one", "two")})
        )
        file.chmod(0o600)
        worker = relay(webhooks_file=file, http_allow_private="true")
        for name in ("one", "two"):
            relevo.subscribe_news(worker.conn, name, webhook=name)
        worker.tell("ana!DeviceNotRegistered")
        worker.dispatch()
        refuse("met.subscription = 'one'", "update on relevo.news_cursors")
        report = worker.reap()
    assert report.outcome == "partial"
    assert "news for subscription one: " in report.error
    assert report.counts["news_sent"] >= 1


def test_what_healed_is_not_told_for_long(relay) -> None:
    """Status names what is left alone, and no longer a minute after its last try was due, if it was met by a worker that is gone."""
    worker = relay()
    told = """insert into relevo.troubles (kind, name, error, retry_at)
              values ('lane', 'bulk now', 'no', now() + interval '5 seconds'), ('lane', 'bulk before', 'no', now() - interval '61 seconds')"""
    worker.conn.execute(told)
    problems = fleet.status(worker.app.database, worker.app.settings).problems
    said = [str(each) for each in problems if each.code == "left_alone"]
    assert [("now" in each, "before" in each) for each in said] == [(True, False)]


def test_what_is_locked_is_told_from_the_third_time_on(relay) -> None:
    """What is locked twice is tried again and nobody need know; the third time in a row is told, and any other error at
    once; what went well is forgotten, and counts from the start again."""
    worker = relay()
    troubles = Troubles(worker.app.database)
    lanes = {name: Thing("lane", f"bulk {name}") for name in ("twice", "thrice", "apart", "refused")}

    def meet(name: str, times: int, error: Exception) -> None:
        for _ in range(times):
            troubles.met(lanes[name], error)

    meet("twice", 2, psycopg.errors.LockNotAvailable("locked"))
    meet("thrice", 3, psycopg.errors.LockNotAvailable("locked"))
    meet("refused", 1, psycopg.errors.CheckViolation("refused"))
    meet("apart", 2, psycopg.errors.LockNotAvailable("locked"))
    troubles.went_well(lanes["apart"])
    meet("apart", 1, psycopg.errors.LockNotAvailable("locked"))
    named = "select name from relevo.troubles order by name"
    assert [row["name"] for row in worker.rows(named)] == ["bulk refused", "bulk thrice"]
    troubles.went_well(lanes["thrice"])
    assert [row["name"] for row in worker.rows(named)] == ["bulk refused"]
    assert set(troubles.resting("lane")) == {"bulk twice", "bulk apart", "bulk refused"}


def test_an_outage_is_nobodys_own() -> None:
    """It is raised again, and nothing is left alone for it."""
    troubles = Troubles()
    with pytest.raises(psycopg.errors.AdminShutdown):
        troubles.met(Thing("lane", "bulk one"), psycopg.errors.AdminShutdown())
    assert troubles.resting("lane") == {}


def test_an_event_that_cannot_be_deleted_keeps_no_other(relay, refuse) -> None:
    """What is left of other deleted events goes; that of one whose row cannot be deleted goes once it can be."""
    worker = relay()
    worker.register("ana")
    events = [worker.tell("ana"), worker.tell("ana")]
    for event in events:
        worker.conn.execute(
            "insert into relevo.deleted_events (event_id, event_day) values (%s, now() at time zone 'UTC')", [event]
        )
    refuse(f"met.notification_event_id = {events[0]}", "delete on relevo.notification_deliveries")
    report = worker.reap()
    left = "select event_id from relevo.deleted_events"
    assert worker.rows(left) == [{"event_id": events[0]}]
    assert worker.rows("select distinct notification_event_id as event_id from relevo.notification_deliveries") == [
        {"event_id": events[0]}
    ]
    assert (report.outcome, f"leftovers of event {events[0]}: " in report.error) == ("partial", True)
    mend(worker)
    worker.reap()
    assert worker.rows(left) == []


def test_a_phone_that_cannot_be_followed_keeps_no_other(relay, refuse) -> None:
    """What waits for phones that moved follows each of them, but for the one whose delivery cannot be written; that is told."""
    worker = relay()
    names = [f"phone-{n}" for n in range(9)]
    worker.register(*names)
    worker.tell(*names)
    bad = worker.phones[names[3]]
    worker.conn.execute("update relevo.notification_deliveries set project = 'fcm::before::android', provider = 'fcm'")
    worker.conn.execute("update relevo.due_chunks set project = 'fcm::before::android'")
    for name in names:
        worker.conn.execute("insert into relevo.moved_phones (installation_id) values (%s)", [worker.phones[name]])
    refuse(f"met.installation_id = '{bad}'", "update on relevo.notification_deliveries")
    report = worker.reap()
    assert worker.rows("select installation_id from relevo.deliveries where project <> 'default'") == [
        {"installation_id": bad}
    ]
    assert (report.outcome, "reaper: follow_moved_phones" in report.error) == ("partial", True)
    assert any("follow_moved_phones" in each for each in told(worker))
    mend(worker)
    worker.reap()
    assert worker.rows("select from relevo.deliveries where project <> 'default'") == []


def test_news_that_cannot_be_written_keep_no_other(relay, refuse) -> None:
    """The other news are shared out; those that cannot be written are shared out once they can be."""
    worker = relay()
    relevo.subscribe_news(worker.conn, "app")
    for name in ("ana", "eva", "leo"):
        worker.tell(f"{name}!DeviceNotRegistered")
    worker.dispatch()
    bad = worker.phones["ana!DeviceNotRegistered"]
    refuse(f"met.installation_id = '{bad}'", "insert on relevo.news")
    shared = "select count(*)::int as n, count(*) filter (where installation_id = %s)::int as bad from relevo.news"
    before = worker.rows("select count(*)::int as n from relevo.news_inbox")[0]["n"]
    report = worker.reap()
    assert (report.outcome, "reaper: news" in report.error) == ("partial", True)
    assert report.counts["left_alone"] == 1
    assert worker.rows(shared, bad)[0]["n"] >= before - 1
    mend(worker)
    worker.reap()
    assert worker.rows(shared, bad)[0]["bad"] == 1
    assert worker.rows("select from relevo.news_inbox") == []


def test_counts_of_an_event_that_cannot_be_written_keep_no_other(relay, refuse) -> None:
    """Changes of other events' counts are folded, before and behind those of one that cannot be written; the run names that one."""
    worker = relay()
    worker.conn.execute(
        "insert into relevo.event_progress_deltas (event_id, status, deliveries) select 900 + n % 9, 'ok', 1 from generate_series(1, 45) as n"
    )
    refuse("met.event_id = 904", "insert on relevo.event_progress")
    report = worker.reap()
    folded = "select event_id, deliveries from relevo.event_progress where event_id > 900 order by event_id"
    assert [row["event_id"] for row in worker.rows(folded)] == [901, 902, 903, 905, 906, 907, 908]
    assert (report.outcome, "fold_progress, event 904 that" in report.error) == ("partial", True)
    assert report.counts["left_alone"] == 1
    mend(worker)
    worker.reap()
    assert {row["deliveries"] for row in worker.rows(folded)} == {5}
    assert worker.rows("select from relevo.event_progress_deltas") == []


def test_a_count_that_cannot_be_written_keeps_no_other(relay, refuse) -> None:
    """Changes of the sums by status are folded though those of one status cannot be; the run names the part, and nothing is lost."""
    worker = relay()
    worker.conn.execute("truncate relevo.delivery_counts")
    worker.conn.execute(
        "insert into relevo.delivery_counts (status, deliveries) select (array['ok', 'failed', 'sent'])[1 + n % 3], 1 from generate_series(1, 30) as n"
    )
    refuse("met.status = 'failed'", "insert on relevo.delivery_counts")
    report = worker.reap()
    kept = "select status, count(*)::int as rows, sum(deliveries)::int as n from relevo.delivery_counts group by status order by status"
    told_apart = {row["status"]: row["rows"] for row in worker.rows(kept)}
    assert (told_apart["ok"], told_apart["sent"]) == (1, 1)
    assert (report.outcome, "fold_counts, status failed that" in report.error) == ("partial", True)
    mend(worker)
    worker.reap()
    assert worker.rows(kept) == [{"status": each, "rows": 1, "n": 10} for each in ("failed", "ok", "sent")]


def test_a_held_event_that_cannot_be_ended_keeps_no_cancelled_one(relay, refuse) -> None:
    """A cancelled event is swept though a held one, whose deadline passed, cannot be written; the run names that one."""
    worker = relay()
    worker.register("ana", "eva")
    cancelled, held, late = (worker.tell("ana"), worker.tell("eva"), worker.tell("eva"))
    worker.conn.execute(
        """update relevo.notification_events
              set state = 'held', event_day = null, fanout_started_at = null, fanout_finished_at = null, fanout_upto = null,
                  fanout_cursor = 0, scheduled_at = now() - interval '1 hour', deadline_at = now() - interval '1 minute' where id = any (%s)""",
        [[held, late]],
    )
    relevo.cancel(worker.conn, cancelled)
    refuse(f"old.id = {held} and old.state = 'held'", "update on relevo.notification_events")
    report = worker.run("fanout")
    state = "select state, swept_at is not null as swept from relevo.notification_events where id = %s"
    assert worker.rows(state, cancelled) == [{"state": "cancelled", "swept": True}]
    assert [worker.rows(state, each)[0]["state"] for each in (held, late)] == ["held", "cancelled"]
    assert (report.outcome, f"held event {held}: " in report.error) == ("partial", True)
