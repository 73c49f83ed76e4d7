"""Events told by the texts of their type: each phone in its language, by every push service, and nothing that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.types.json import Jsonb

from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners, Preference, TenderMatching
from relevo.core import wordings
from relevo.core.errors import InvalidInputError
from relevo.operators import words
from relevo.sandbox import Sandbox
from relevo.sandbox.push_service import phone_key
from support import mixed_phones
from support.sending_worker import Relay

TEXTS = {
    "en": {"title": "{count, plural, one {# new tender} other {# new tenders}}", "body": "Worth {worth, number, ::currency/CLP}"},
    "es": {"title": "{count, plural, one {# licitación} other {# licitaciones}}", "body": "Por {worth, number, ::currency/CLP}"},
    "es-CL": "es",
    "pl": {
        "title": "{count, plural, one {# przetarg} few {# przetargi} many {# przetargów} other {# przetargu}}",
        "body": "Wartość {worth, number, ::currency/CLP}",
    },
}  # fmt: skip
GIVEN = {"type": "tenders.new", "default": "en", "arguments": {"count": 3, "worth": 120_000_000}, "texts": TEXTS}
AT = {
    "type": "meeting",
    "default": "en",
    "arguments": {"at": "2026-09-06T04:30:00Z"},
    "texts": {"en": {"title": "At {at, date, ::EEEHHmm}"}, "es": {"title": "El {at, date, ::EEEHHmm}"}},
}


@pytest.fixture(scope="module")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay, sandbox) -> Relay:
    """A worker that sends by every push service."""
    made: Relay = relay(**mixed_phones.addresses(sandbox))
    return made


def save(worker: Relay, **changed: Any) -> int:
    """Save the texts of a type, and return their version."""
    return words.save(worker.app.database, words.parse(GIVEN | changed)).version


def shown(worker: Relay, token: str) -> tuple[str, str]:
    """Return title and body of the only push that a phone got."""
    (message,) = worker.sandbox.received(phone_key(token))
    return message.get("title") or "", message.get("body") or ""


def tell(worker: Relay, count: int = 3, **fields: Any) -> int:
    """Enqueue an event with its arguments, for everyone, and send it."""
    usual: dict[str, Any] = {
        "type": "tenders.new",
        "title": "",
        "body": "",
        "arguments": {"count": count, "worth": 120_000_000},
    }
    event = worker.enqueue(**usual | fields)
    worker.fan_out()
    worker.drain()
    return event


def event_row(worker: Relay, event: int) -> dict[str, Any]:
    """Read an event's row."""
    (row,) = worker.rows("select * from relevo.notification_events where id = %s", event)
    return row


@pytest.mark.parametrize("kind", mixed_phones.ONE_OF_EACH)
def test_each_phone_is_told_in_its_language(worker, kind) -> None:
    """By every push service: Chile's Spanish, English, Polish with its four plural forms, and the default for the others."""
    save(worker)
    said = {
        "es-CL": ("5 licitaciones", "Por $120.000.000"),
        "es-MX": ("5 licitaciones", "Por 120.000.000 CLP"),
        "pl_PL": ("5 przetargów", "Wartość 120 000 000 CLP"),
        "en-GB": ("5 new tenders", "Worth CLP 120,000,000"),
        "fr": ("5 new tenders", "Worth CLP 120,000,000"),
    }
    phones = {
        locale: mixed_phones.installation(worker.sandbox, kind, f"{kind}-{locale}", locale=locale) for locale in said
    }
    for phone in phones.values():
        verbs.register(worker.conn, phone)
    event = tell(worker, 5)
    seen = {locale: shown(worker, phone.token or "") for locale, phone in phones.items()}
    assert {locale: tuple(part.replace("\xa0", " ") for part in text) for locale, text in seen.items()} == said
    assert event_row(worker, event)["title"] == "5 new tenders"


def test_the_language_of_the_project(worker) -> None:
    """Without a text in its own language a phone is told in the project's, by every push service and in the inbox, if there is one; else in the type's."""
    save(worker)
    words.set_project_locale(worker.app.database, "default", "es-CL")
    worker.register("ana")
    worker.register("jean", locale="fr", owner="jean")
    worker.register("ania", locale="pl")
    native = [mixed_phones.installation(worker.sandbox, kind, kind, locale="fr") for kind in mixed_phones.NATIVE_PHONES]
    for phone in native:
        verbs.register(worker.conn, phone)
    tell(worker, 1)
    assert {shown(worker, phone.token or "")[0] for phone in native} == {"1 licitación"}
    titles = {name: worker.messages(name)[0]["title"] for name in worker.phones}
    assert titles == {"ana": "1 licitación", "jean": "1 licitación", "ania": "1 przetarg"}
    asked = "select relevo.inbox('{\"owner\": \"jean\"}') -> 'items' -> 0 ->> 'title' as title"
    assert worker.rows(asked) == [{"title": "1 licitación"}]
    words.set_project_locale(worker.app.database, "default", None)
    tell(worker, 2)
    assert worker.messages("jean")[-1]["title"] == "2 new tenders"
    assert [row["title"] for row in worker.rows(asked)] == ["2 new tenders"]


def test_one_and_few(worker) -> None:
    """The form follows the number, for each event by itself; a type with texts may have events with text of their own."""
    save(worker)
    worker.register("ania", locale="pl")
    for count in (1, 22):
        tell(worker, count)
    worker.tell_everyone(type="tenders.new", title="Own {words}")
    worker.drain()
    assert [each["title"] for each in worker.messages("ania")] == ["1 przetarg", "22 przetargi", "Own {words}"]


def test_times_are_those_of_each_phone(worker) -> None:
    """One event is told to each phone with the time that its own clock shows; a phone without a zone is told UTC."""
    save(worker, **AT)
    worker.register("ana", locale="es-CL", timezone="America/Santiago")
    worker.register("yuki", timezone="Asia/Tokyo")
    worker.register("nobody")
    tell(worker, type="meeting", arguments={"at": datetime(2026, 9, 6, 4, 30, tzinfo=UTC)})
    titles = {name: worker.messages(name)[0]["title"] for name in worker.phones}
    assert titles == {"ana": "El dom, 1:30", "yuki": "At Sun 13:30", "nobody": "At Sun 04:30"}


def test_a_correction_reaches_what_waits(worker) -> None:
    """The version is chosen when an event falls due; the same texts again are the same version, and none is ever edited."""
    assert (save(worker), save(worker)) == (1, 1)
    worker.register("ana", locale="es")
    later = {"scheduled_at": datetime.now(UTC) + timedelta(hours=1), "audience": "everyone"}
    event = tell(worker, **later)
    assert (event_row(worker, event)["wording"], worker.messages("ana")) == (None, [])
    assert save(worker, texts=TEXTS | {"es": {"title": "Corregido: {count} {worth}"}}) == 2
    # a third one asks for more than the event has: the second is the newest that fits
    assert save(worker, arguments={"more": "x"}, texts={"en": {"title": "{more}"}}) == 3
    worker.travel(hours=2)
    worker.fan_out()
    worker.drain()
    assert [each["title"] for each in worker.messages("ana")] == ["Corregido: 3 120.000.000"]
    assert event_row(worker, event)["wording"] == 2
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match="is never changed"):
        worker.conn.execute("update relevo.wordings set zoned = true")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"count": 3}, "argument worth is missing: the texts of its type name it"),
        ({"count": None, "worth": 1}, "argument count is missing"),
        ({"count": "3", "worth": 1}, "argument count must be a number"),
        ({"count": 10**30, "worth": 1}, "argument count must be a number"),
        ({}, "argument count is missing"),
    ],
)  # fmt: skip
def test_an_event_without_its_arguments_is_refused(worker, arguments, complaint) -> None:
    """Where it is enqueued, by name; nothing of it is there."""
    save(worker)
    with pytest.raises(InvalidInputError, match=complaint):
        worker.enqueue(type="tenders.new", title="", body="", arguments=arguments)
    assert worker.rows("select from relevo.notification_events") == []


def test_arguments_need_texts_and_leave_no_room_for_others(worker) -> None:
    """A type without texts takes no arguments, an event has either arguments or a title; a time must be one."""
    with pytest.raises(InvalidInputError, match=r'type "tenders\.new" has no texts'):
        tell(worker)
    save(worker)
    with pytest.raises(InvalidInputError, match="not both"):
        tell(worker, title="Mine")
    with pytest.raises(InvalidInputError, match="must fit into 4096 bytes"):
        tell(worker, data={"a": "x" * 3_700})
    save(worker, **AT)
    for wrong in ("soon", "2026-13-06", "2026-09-06T04:30:00", "2026-09-06T25:30:00Z", 7):
        with pytest.raises(InvalidInputError, match="argument at must be a time with its offset"):
            tell(worker, type="meeting", arguments={"at": wrong})


def test_an_error_of_a_text_reaches_no_phone(worker) -> None:
    """A text that is too large with its arguments, or was never checked, ends its event before any delivery is made."""
    save(worker, arguments={"name": "Ana"}, texts={"en": {"title": "{name}"}, "es": {"title": "{name}{name}"}})
    worker.register("ana")
    large = worker.enqueue(type="tenders.new", title="", body="", arguments={"name": "x" * 300})
    broken = {
        "type": "broken",
        "default": "en",
        "texts": {"en": {"title": "{a, plural, other {"}},
        "arguments": {},
        "zoned": False,
        "bytes": 9,
    }
    worker.conn.execute("select relevo.save_wording(%s)", [Jsonb(broken)])
    never = worker.enqueue(type="broken", title="", body="", arguments={})
    good = worker.enqueue(type="tenders.new", title="", body="", arguments={"name": "Eva"})
    texts = {f"en-{one}{two}": {"title": "{a}", "body": "{a}{a}"} for one in "ABCDE" for two in "ABCDEFGHIJ"}
    save(worker, type="wide", default="en-AA", texts=texts, arguments={"a": "short"})
    wide = worker.enqueue(type="wide", title="", body="", arguments={"a": "x" * 500})
    report = worker.run("fanout")
    worker.drain()
    assert report.outcome == "partial"
    assert [each["title"] for each in worker.messages("ana")] == ["Eva"]
    reasons = {event: event_row(worker, event)["end_reason"] for event in (large, never, good, wide)}
    assert "all languages together have 76250 bytes" in (reasons[wide] or "")
    assert reasons[large] == "its texts could not be rendered: es title has more than 500 characters once rendered"
    assert "en title cannot be rendered" in (reasons[never] or "")
    assert reasons[good] is None
    assert len(worker.deliveries()) == 1


def test_a_pattern_that_would_freeze_ends_its_event_alone(worker) -> None:
    """A row written by hand is refused where it is rendered, with its style, and the next event is sent."""
    save(worker)
    worker.register("ana", locale="es")
    ends = {}
    for name, kind, style in (
        ("freezes", "number", "number, ::scale/1e300000000"),
        ("grows", "time", "date, ::jmmzzzz"),
    ):
        given = {
            "type": name,
            "default": "en",
            "texts": {"en": {"title": f"{{a0, {style}}}"}, "es": {"title": "Hola"}},
            "arguments": {"a0": {"kind": kind, "sample": 1}},
            "zoned": kind == "time",
            "bytes": 9,
        }
        worker.conn.execute("select relevo.save_wording(%s)", [Jsonb(given)])
        arguments = {"a0": 7 if kind == "number" else "2026-09-06"}
        ends[style] = worker.enqueue(type=name, title="", body="", arguments=arguments)
    worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 1, "worth": 1})
    report = worker.run("fanout")
    worker.drain()
    assert (report.outcome, [each["title"] for each in worker.messages("ana")]) == ("partial", ["1 licitación"])
    for style, event in ends.items():
        said = event_row(worker, event)["end_reason"]
        assert said.startswith(
            f"its texts could not be rendered: en title cannot be rendered ({{a0, {style}}} has a style"
        )
        assert f"en title cannot be rendered ({{a0, {style}" in str(report.error)


def test_a_day_has_so_many_versions(worker) -> None:
    """Texts are kept for good: a type that was saved a hundred times today is refused, and another one is saved."""
    for count in range(100):
        assert save(worker, arguments={}, texts={"en": {"title": f"Version {count}"}}) == count + 1
    with pytest.raises(InvalidInputError, match=r"tenders\.new has 100 new versions of its texts since yesterday"):
        save(worker, arguments={}, texts={"en": {"title": "One more"}})
    assert save(worker, arguments={}, texts={"en": {"title": "Version 99"}}) == 100
    assert save(worker, **AT) == 1
    large = {
        "type": "large", "default": "en", "texts": {"en": {"title": "x" * 200_000}}, "arguments": {}, "zoned": False, "bytes": 9,
    }  # fmt: skip
    with pytest.raises(pg.InvalidParameterValue, match="texts must have at most 100000 bytes"):
        worker.conn.execute("select relevo.save_wording(%s)", [Jsonb(large)])


def test_what_is_too_late_gets_no_texts(worker) -> None:
    """It ends without them, also if they could not be rendered; what is in time beside it gets its own."""
    save(worker)
    worker.register("ana")
    late = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 9, "worth": 1}, ttl_s=60)
    worker.travel(minutes=2)
    now = worker.clock.now()
    fine = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 1, "worth": 1}, scheduled_at=now)
    report = worker.fan_out()
    assert (report.counts["events_expired"], report.counts["events_worded"]) == (1, 1)
    assert [bool(event_row(worker, each)["texts"]) for each in (late, fine)] == [False, True]


def test_a_worker_without_icu_leaves_alone_what_is_to_be_rendered(worker, monkeypatch) -> None:
    """It sends everything else, of the same types, too; one that can render sends the rest. What is too late ends without it.

    ICU is broken here as by a library that does not fit: to import it fails.
    """
    save(worker)
    save(worker, **AT)
    worker.register("ana", locale="es")
    worker.enqueue(type="meeting", title="", body="", arguments=AT["arguments"])
    worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 1, "worth": 1})
    worker.fan_out()
    monkeypatch.setitem(sys.modules, "icu4py.messageformat", None)
    wordings.is_available.cache_clear()
    worker.enqueue(type="meeting", title="Plain")
    waits = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 2, "worth": 1})
    late = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 9, "worth": 1}, ttl_s=60)
    worker.tell_everyone()
    worker.drain()
    assert sorted(each["title"] for each in worker.messages("ana")) == ["1 licitación", "Hola", "Plain"]
    assert worker.states() == {"sent": 3, "pending": 1}
    worker.travel(minutes=2)
    worker.fan_out()
    assert [event_row(worker, each)["state"] for each in (waits, late)] == ["waiting", "cancelled"]
    monkeypatch.undo()
    wordings.is_available.cache_clear()
    worker.app.claims._unspoken = (0.0, [])
    worker.fan_out()
    worker.drain()
    assert len(worker.messages("ana")) == 5


def test_what_a_worker_without_icu_has_claimed_waits(worker, monkeypatch) -> None:
    """A worker that claimed before it knew of the texts hands the delivery back, and no attempt is spent."""
    save(worker, **AT)
    worker.register("ana", locale="es")
    worker.enqueue(type="meeting", title="", body="", arguments=AT["arguments"])
    worker.fan_out()
    monkeypatch.setattr(wordings, "is_available", lambda: False)
    worker.app.claims._unspoken = (float("inf"), [])
    worker.dispatch()
    found = worker.delivery("ana")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("pending", 0, "words_missing")
    monkeypatch.undo()
    worker.travel(minutes=5)
    worker.drain()
    assert [each["title"] for each in worker.messages("ana")] == ["El dom, 4:30"]


def test_one_bad_event_stops_only_itself(worker) -> None:
    """An event that the database refuses to word is tried again by itself; the others are worded and sent meanwhile."""
    save(worker)
    worker.register("ana", locale="es")
    worker.conn.execute(
        """create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
           create trigger refuse before update on relevo.notification_events for each row
           when (new.title = '13 new tenders') execute function pg_temp.refuse()"""
    )
    bad = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 13, "worth": 1})
    worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 1, "worth": 1})
    report = worker.run("fanout")
    worker.drain()
    assert (report.outcome, "not this one" in str(report.error)) == ("partial", True)
    assert [each["title"] for each in worker.messages("ana")] == ["1 licitación"]
    assert event_row(worker, bad)["fanout_failures"] == 1
    worker.conn.execute("drop trigger refuse on relevo.notification_events")
    worker.travel(minutes=20)
    worker.fan_out()
    worker.drain()
    assert [each["title"] for each in worker.messages("ana")] == ["1 licitación", "13 licitaciones"]


def test_a_worker_of_0_3_0_gets_none(worker) -> None:
    """What it calls to fan out and to claim leaves out what is told by texts, and nothing else; meanwhile it is not kept busy by it."""
    save(worker)
    worker.register("ana")
    waits = worker.enqueue(type="tenders.new", title="", body="", arguments={"count": 1, "worth": 1})
    fanned = worker.rows(
        "select * from relevo.fan_out_next_3('', '{}', '{}', '{}', 100, 100, 1000, true, 5, true, false, null)"
    )
    assert (fanned, event_row(worker, waits)["state"]) == ([], "waiting")
    worker.fan_out()
    look = "select wait_s from relevo.due_lanes_2(null, 0, 100, '{}', '{}', '{}', '', '', 100)"
    assert [row["wait_s"] for row in worker.rows(look)] == [5]
    plain = worker.enqueue(type="tenders.new", title="Plain")
    worker.fan_out()
    assert worker.rows(look)[0]["wait_s"] <= 0
    claim = """select event_id from relevo.claim_due_4(gen_random_uuid(), 'old', 'dispatch', 'default', 'bulk', 100, null, null, null, null,
                                                        %s, 2, 60000, null)"""
    for left_out in (None, ["other"]):
        with worker.conn.transaction(force_rollback=True):
            assert [row["event_id"] for row in worker.rows(claim, left_out)] == [plain]
    probe = """select event_id from relevo.claim_probe_2(gen_random_uuid(), 'old', 'dispatch', 'default', 'bulk', 100, null, null, null, null,
                                                          null, 60000, 5000)"""
    assert [row["event_id"] for row in worker.rows(probe)] == [plain]


def test_the_same_event_again(worker) -> None:
    """Its key is known also after its texts were rendered; other arguments are other content, named without their values."""
    save(worker)
    first = tell(worker, key="one")
    assert tell(worker, key="one") == first
    with pytest.raises(Exception, match="arguments differs in count"):
        tell(worker, 4, key="one")


def test_a_changed_event_is_worded_anew(worker) -> None:
    """A scheduled event may get other arguments, or text of its own, as long as it waits."""
    save(worker)
    worker.register("ana", locale="es")
    later = datetime.now(UTC) + timedelta(hours=1)
    event = Event("tenders.new", "k", audience="everyone", arguments={"count": 3, "worth": 1}, scheduled_at=later)
    verbs.enqueue(worker.conn, event)
    other = Event("tenders.new", "l", audience="everyone", arguments={"count": 3, "worth": 1}, scheduled_at=later)
    verbs.enqueue(worker.conn, other)
    for each, said in ((event, {"arguments": {"count": 1, "worth": 1}}), (other, {"arguments": None, "title": "Mine"})):
        changed = {**vars(each), **said}
        assert verbs.change(worker.conn, Event(**changed))
    worker.travel(hours=2)
    worker.fan_out()
    worker.drain()
    assert sorted(each["title"] for each in worker.messages("ana")) == ["1 licitación", "Mine"]


def test_forgetting_takes_the_arguments_along(worker) -> None:
    """What was said to a person by texts is gone with them: arguments, texts, title."""
    save(worker, arguments={"name": "Ana"}, texts={"en": {"title": "Hello {name}"}})
    verbs.register(worker.conn, Installation("ExponentPushToken[a]", owner="ana"))
    event = tell(worker, audience=Owners("ana"), arguments={"name": "Ana Secret"})
    assert "Ana Secret" in str(event_row(worker, event))
    worker.conn.execute("select relevo.forget_owner('ana')")
    assert "Ana Secret" not in str(worker.rows("select * from relevo.notification_events"))


def test_many_personal_events(worker) -> None:
    """Each of many events has its own arguments, and they are worded and sent together."""
    save(worker)
    worker.register("ana", locale="pl", owner="ana")
    for count in range(1, 21):
        worker.enqueue(
            type="tenders.new", title="", body="", arguments={"count": count, "worth": 1}, audience=Owners("ana")
        )
    worker.fan_out()
    worker.drain()
    titles = [each["title"] for each in worker.messages("ana")]
    assert len(set(titles)) == 20
    assert {"1 przetarg", "4 przetargi", "12 przetargów"} <= set(titles)


def test_a_type_with_texts_in_sql(worker, conn: psycopg.Connection[Any]) -> None:
    """An app that enqueues in SQL gives arguments as any field, and is told what is missing with the usual code."""
    save(worker)
    event = {"type": "tenders.new", "key": "1", "audience": "everyone", "arguments": {"count": 1}}
    with pytest.raises(pg.InvalidParameterValue, match="argument worth is missing"):
        worker.conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])
    event["arguments"] = {"count": 1, "worth": 2, "unused": [1]}
    assert worker.rows("select created from relevo.enqueue(%s)", Jsonb(event)) == [{"created": True}]


def test_a_step_renders_for_a_bounded_time(worker, monkeypatch) -> None:
    """Events whose texts take long are worded in several steps, each at least one, so that fan-out has its turn between."""
    save(worker)
    worker.register("ana", locale="es")
    monkeypatch.setattr("relevo.cycles.wording._STEP_S", 0.0)
    for count in (1, 2, 3):
        worker.enqueue(type="tenders.new", title="", body="", arguments={"count": count, "worth": 1})
    report = worker.run("fanout")
    worker.drain()
    assert (report.outcome, report.counts["events_worded"]) == ("ok", 3)
    assert len(worker.messages("ana")) == 3


def test_a_digest_whose_text_would_freeze_is_told_by_the_usual_one(worker) -> None:
    """A text of digests that somebody wrote by hand and that is not accepted costs nobody the digest."""
    given = {
        "type": "relevo.digest",
        "default": "en",
        "texts": {"en": {"title": "{count, number, ::scale/1e300000000}"}},
        "arguments": {"count": {"kind": "number", "sample": 1}},
        "zoned": False,
        "bytes": 9,
    }
    worker.conn.execute("select relevo.save_wording(%s)", [Jsonb(given)])
    [phone] = worker.register("ana", locale="en")
    verbs.set_preference(worker.conn, phone, "default", Preference(delivery="hourly"))
    verbs.enqueue(worker.conn, Event("tender.new", "1", "Tender", "Open", audience=TenderMatching(region="Maule")))
    worker.fan_out()
    worker.travel(hours=2)
    worker.run("digest")
    worker.drain()
    assert [each["title"] for each in worker.messages("ana")] == ["1 new for you"]
