"""What is not valid is refused in words that name it, and nothing of it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Matching, Preference, TenderMatching, TenderPreference
from relevo.client import checks
from relevo.core.errors import InvalidInputError
from support.push_tokens import BAD_TOKENS

GOOD = {"type": "t", "key": "k", "title": "Hello", "audience": "everyone"}
PERSONAL = GOOD | {"audience": "installations"}
ABOUT = GOOD | {"audience": "matching"}
PHONE = str(UUID(int=0))
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
NEXT_YEAR = datetime.now(UTC) + timedelta(days=365)
LATER = (datetime.now(UTC) + timedelta(hours=2)).isoformat()


def refusal(conn: psycopg.Connection[Any], function: str, *arguments: Any) -> str:
    """Call a function of the door as any language would and return its complaint."""
    places = ", ".join(["%s"] * len(arguments))
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        conn.execute(f"select relevo.{function}({places})", arguments)
    assert caught.value.diag.message_primary is not None
    return caught.value.diag.message_primary


@pytest.mark.parametrize("letter", ["x", "ñ", '"', "\x01", "📋"])
@pytest.mark.parametrize("field", ["body", "data"])
def test_what_is_not_weighed_is_light(field: str, letter: str) -> None:
    """However the bytes lie, an event that Python does not weigh because it is short fits, with all that is added."""
    short = [
        event
        for count in range(2_000)
        if checks._is_light(event := {"title": "", field: letter * count if field == "body" else {"a": letter * count}})
    ]
    assert len(short) > 250
    assert max(map(checks.weight, short)) <= 4096


def stored(conn: psycopg.Connection[Any], event: Mapping[str, Any]) -> dict[str, Any]:
    """Enqueue an event, return its row without what no two events share, and undo that."""
    with conn.transaction(force_rollback=True), conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute("select relevo.enqueue(%s)", [Jsonb(event)])
        row = cursor.execute("select * from relevo.notification_events").fetchone()
    assert row is not None
    return {name: value for name, value in row.items() if name != "id" and not name.endswith("_at")}


BAD_EVENTS = [
    (None, "an event must be a JSON object"),
    ([], "an event must be a JSON object"),
    ("t", "an event must be a JSON object"),
    (GOOD | {"titel": "x", "bodi": "x"}, "an event has no field bodi, titel"),
    ({k: v for k, v in GOOD.items() if k != "type"}, "type must be given"),
    (GOOD | {"key": " "}, "key must be given"),
    (GOOD | {"title": None}, "an event must say something: give it a title, a body or data"),
    (GOOD | {"title": " ", "data": {}}, "an event must say something: give it a title, a body or data"),
    (GOOD | {"type": "relevo.news"}, "type must not begin with relevo., which is for Relevo itself"),
    (GOOD | {"type": "x" * 101}, "type must be text of 1 to 100 characters"),
    (GOOD | {"key": "x" * 301}, "key must be text of 1 to 300 characters"),
    (GOOD | {"key": 7}, "key must be text of 1 to 300 characters"),
    (GOOD | {"title": "x" * 501}, "title must be text of 0 to 500 characters"),
    (GOOD | {"title": ["x"]}, "title must be text of 0 to 500 characters"),
    (GOOD | {"body": "x" * 2001}, "body must be text of 0 to 2000 characters"),
    (GOOD | {"category": ""}, "category must be text of 1 to 100 characters"),
    (GOOD | {"category": "x" * 101}, "category must be text of 1 to 100 characters"),
    (GOOD | {"data": [1]}, "data must be a JSON object"),
    (GOOD | {"push": "sound"}, "push must be a JSON object"),
    (
        GOOD | {"push": {"volume": 1}},
        "push has no field volume; it may have _contentAvailable, _displayInForeground, actions",
    ),
    (GOOD | {"push": {"title": "x"}}, "push has no field title; it may have "),
    (GOOD | {"push": {"badge": "1"}}, "push.badge must be a whole number between 0 and 2147483647"),
    (GOOD | {"push": {"sound": {"name": 7}}}, "push.sound.name must be text of 1 to 100 characters"),
    (GOOD | {"audience": "all"}, "audience must be everyone, installations, owners, matching or attributes"),
    (GOOD | {"audience": None}, "audience must be given: everyone, installations, owners, matching or attributes"),
    (GOOD | {"audience": ["everyone"]}, "audience must be everyone, installations, owners, matching or attributes"),
    (GOOD | {"audience": "owners"}, "owners must be a list exactly when audience is owners"),
    (GOOD | {"owners": ["ana"]}, "owners must be a list exactly when audience is owners"),
    (
        GOOD | {"audience": "owners", "owners": [7]},
        "owners must be a list of at most 100000 texts of 1 to 200 characters",
    ),
    (
        GOOD | {"audience": "owners", "owners": ["ana", ""]},
        "owners must be a list of at most 100000 texts of 1 to 200 characters",
    ),
    (GOOD | {"topics": ["a"]}, "topics are looked for in preferences: with topics, audience must be matching"),
    (ABOUT | {"topics": "a"}, "topics must be a list of at most 100 texts of 1 to 100 characters"),
    (ABOUT | {"topics": ["a"] * 101}, "topics must be a list of at most 100 texts of 1 to 100 characters"),
    (ABOUT | {"topics": []}, "matching or topics must say what the event is about when audience is matching"),
    (PERSONAL, "installations must be a list exactly when audience is installations"),
    (GOOD | {"installations": [str(uuid4())]}, "installations must be a list exactly when audience is installations"),
    (PERSONAL | {"installations": [str(uuid4())] * 100_001}, "installations must name at most 100000 of them"),
    (PERSONAL | {"installations": ["me"]}, "installations must be UUIDs, got me"),
    (PERSONAL | {"installations": ["", PHONE + PHONE]}, "installations must be UUIDs, got "),
    (PERSONAL | {"installations": [PHONE[:-1], "0" + PHONE]}, f"installations must be UUIDs, got {PHONE[:-1]}"),
    (PERSONAL | {"installations": [PHONE, PHONE + "0", PHONE[1:]]}, f"installations must be UUIDs, got {PHONE}0"),
    (PERSONAL | {"installations": [str(uuid4()), None]}, "installations must be UUIDs, got null"),
    (PERSONAL | {"installations": [{"a": 1}]}, 'installations must be UUIDs, got {"a": 1}'),
    (ABOUT, "matching or topics must say what the event is about when audience is matching"),
    (ABOUT | {"matching": "aseo"}, "matching must be a JSON object"),
    (ABOUT | {"matching": {"words": "aseo"}}, "matching has no field words"),
    (
        ABOUT | {"matching": {"rubros": "72"}},
        "matching.rubros must be a list of at most 2000 texts of 1 to 100 characters",
    ),
    (
        ABOUT | {"matching": {"rubros": ["7"] * 2001}},
        "matching.rubros must be a list of at most 2000 texts of 1 to 100 characters",
    ),
    (
        ABOUT | {"matching": {"rubros": [72]}},
        "matching.rubros must be a list of at most 2000 texts of 1 to 100 characters",
    ),
    (ABOUT | {"matching": {"region": 8}}, "matching.region must be text of 0 to 200 characters"),
    (ABOUT | {"matching": {"region": "x" * 201}}, "matching.region must be text of 0 to 200 characters"),
    (ABOUT | {"matching": {"tipo": "x" * 101}}, "matching.tipo must be text of 0 to 100 characters"),
    (ABOUT | {"matching": {"text": "x" * 20_001}}, "matching.text must be text of 0 to 20000 characters"),
    (ABOUT | {"matching": {"monto": "5"}}, "matching.monto must be a number between 0 and 999999999999999999"),
    (ABOUT | {"matching": {"monto": -1}}, "matching.monto must be a number between 0 and 999999999999999999"),
    (ABOUT | {"matching": {"monto": 1e30}}, "matching.monto must be a number between 0 and 999999999999999999"),
    (
        ABOUT | {"matching": {"moneda": "clp"}},
        "matching.moneda must be a currency of three capital letters, such as CLP",
    ),
    (ABOUT | {"matching": {"moneda": 7}}, "matching.moneda must be a currency of three capital letters, such as CLP"),
    (GOOD | {"lane": "fast"}, "lane must be urgent or bulk"),
    (GOOD | {"at_most_once": "yes"}, "at_most_once must be true or false"),
    (GOOD | {"ttl_s": 0}, "ttl_s must be a whole number between 1 and 2419200"),
    (GOOD | {"ttl_s": 2_419_201}, "ttl_s must be a whole number between 1 and 2419200"),
    (GOOD | {"ttl_s": 1.5}, "ttl_s must be a whole number between 1 and 2419200"),
    (GOOD | {"ttl_s": "60"}, "ttl_s must be a whole number between 1 and 2419200"),
    (GOOD | {"licitacion_id": "abc"}, "licitacion_id must be a whole number between 1 and 9223372036854775807"),
    (GOOD | {"licitacion_id": 1.5}, "licitacion_id must be a whole number between 1 and 9223372036854775807"),
    (
        GOOD | {"scheduled_at": "soon"},
        "scheduled_at must be a time with its zone, such as 2026-11-15T09:00:00Z, got soon",
    ),
    (GOOD | {"scheduled_at": "tomorrow"}, "scheduled_at must be a time with its zone"),
    (GOOD | {"scheduled_at": "2030-01-01T10:00:00"}, "scheduled_at must be a time with its zone"),
    (GOOD | {"scheduled_at": "2030-01-01"}, "scheduled_at must be a time with its zone"),
    (GOOD | {"scheduled_at": "2030-02-30T10:00:00Z"}, "scheduled_at must be a time with its zone"),
    (GOOD | {"scheduled_at": 1_900_000_000}, "scheduled_at must be a time with its zone"),
    (GOOD | {"deadline_at": "01/02/2030 10:00 Z"}, "deadline_at must be a time with its zone"),
    (GOOD | {"scheduled_at": "1999-01-01T00:00:00Z"}, "scheduled_at must lie between the years 2000 and 2200"),
    (GOOD | {"deadline_at": "2201-01-01T00:00:00Z"}, "deadline_at must lie between the years 2000 and 2200"),
    (GOOD | {"deadline_at": "2020-01-01T00:00:00Z"}, "deadline_at must lie after now and after scheduled_at"),
    (GOOD | {"deadline_at": SOON, "scheduled_at": LATER}, "deadline_at must lie after now and after scheduled_at"),
    (
        GOOD | {"scheduled_at": "2020-01-01T00:00:00Z", "ttl_s": 60},
        "deadline_at must lie after now and after scheduled_at",
    ),
]


class TestEvents:
    """Events."""

    def test_each_rule_is_told_by_name(self, conn) -> None:
        """Every bad event is refused with a sentence that names the field, by enqueue and by enqueue_many."""
        for event, complaint in BAD_EVENTS:
            assert refusal(conn, "enqueue", Jsonb(event)).startswith(complaint), event
            assert refusal(conn, "enqueue_many", Jsonb([GOOD | {"key": "0"}, event])).startswith(
                f"events.1: {complaint}"
            ), event
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)

    def test_null_leaves_a_field_open(self, conn) -> None:
        """Null in an optional field is as good as leaving it out."""
        optional = (
            "body",
            "data",
            "push",
            "installations",
            "owners",
            "topics",
            "matching",
            "category",
            "lane",
            "at_most_once",
            "ttl_s",
        )
        nulls = dict.fromkeys([*optional, "scheduled_at", "deadline_at", "licitacion_id"])
        about = {"rubros": None, "region": None, "tipo": None, "monto": None, "moneda": None, "text": None}
        for left_out, null in [(GOOD, GOOD | nulls), (ABOUT | {"matching": {}}, ABOUT | {"matching": about})]:
            assert stored(conn, null) == stored(conn, left_out)

    def test_many_must_be_a_list(self, conn) -> None:
        """Anything but a list is refused; SQL's null too."""
        complaint = "events must be a list of at most 100000 events"
        for events in (None, {}, "x", 5):
            assert refusal(conn, "enqueue_many", Jsonb(events)) == complaint, events
        assert refusal(conn, "enqueue_many", None) == complaint
        assert refusal(conn, "enqueue", None) == "an event must be a JSON object"

    def test_no_events_are_fine(self, conn) -> None:
        """Nothing to enqueue is nothing to complain about."""
        assert relevo.enqueue_many(conn, []) == []

    def test_one_bad_event_spoils_the_batch(self, conn) -> None:
        """A batch is one statement: nothing half-written."""
        events = [Event("t", str(n), "x" * (501 if n == 7 else 5), audience="everyone") for n in range(10)]
        with pytest.raises(InvalidInputError, match=r"^events\.7: title must be text of 0 to 500 characters"):
            relevo.enqueue_many(conn, events)
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)

    def test_python_hears_a_sentence_and_a_next_step(self, conn) -> None:
        """The Python door raises InvalidInputError with the complaint and a hint, and a naive time is one of them."""
        with pytest.raises(InvalidInputError) as caught:
            relevo.enqueue(conn, Event("t", "1", "Hello", scheduled_at=datetime(2030, 1, 1), audience="everyone"))  # noqa: DTZ001 that is the fault
        assert caught.value.message.startswith("scheduled_at must be a datetime with its zone")
        assert caught.value.hint

    def test_a_time_means_the_same_in_every_session(self, conn) -> None:
        """What is stored does not depend on the session's time zone or date style."""
        conn.execute("set timezone to 'Asia/Tokyo'; set datestyle to 'SQL, DMY'")
        at = "2030-02-01T10:00:00-03:00"
        relevo.enqueue(conn, Event("t", "1", "Hello", scheduled_at=datetime.fromisoformat(at), audience="everyone"))
        stored = conn.execute(
            "select extract(epoch from scheduled_at)::bigint from relevo.notification_events"
        ).fetchone()
        assert stored == (datetime.fromisoformat(at).timestamp(),)


class TestSize:
    """Expo takes 4096 bytes, and what a delivery adds is weighed too."""

    def weigh(self, conn: psycopg.Connection[Any], event: dict[str, Any]) -> int:
        """Return what the door makes of an event's size."""
        ask = "select relevo.push_bytes(%s, %s, %s, %s)"
        given = [event["title"], event["body"], Jsonb(event["data"]), Jsonb(event["push"])]
        row = conn.execute(ask, given).fetchone()
        assert row is not None
        return int(row[0])

    def test_the_last_byte_counts(self, conn) -> None:
        """At exactly 4096 bytes an event passes, one more is refused, whatever the letters weigh."""
        for letter in ("x", "ñ", "📋", '"'):
            event = GOOD | {"key": letter, "body": letter * 300, "data": {"filling": ""}, "push": {"sound": "default"}}
            filling = "x" * (4096 - self.weigh(conn, event))
            event["data"] = {"filling": filling}
            assert self.weigh(conn, event) == 4096
            conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])
            event |= {"key": f"{letter}2", "data": {"filling": filling + "x"}}
            complaint = "title, body, data and push together must fit into 4096 bytes once rendered"
            assert refusal(conn, "enqueue", Jsonb(event)) == complaint

    def test_the_weight_is_no_less_than_what_is_sent(self, conn) -> None:
        """A message with all that a delivery adds is not heavier than what was weighed."""
        event = GOOD | {
            "title": "Título",
            "body": "ñ" * 100,
            "data": {"codigo": "1-2-LE26"},
            "push": {"sound": "default"},
        }
        added = {
            "notificationEventId": 2**63 - 1, "notificationDeliveryId": 2**63 - 1, "installationId": str(uuid4()), "pushProvider": "expo",
        }  # fmt: skip
        message = {
            "to": "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]", "title": event["title"], "body": event["body"], "sound": "default",
            "priority": "high", "ttl": 2_419_200, "data": event["data"] | added,
        }  # fmt: skip
        sent = len(json.dumps(message, ensure_ascii=False).encode())
        assert sent <= self.weigh(conn, event) <= sent + 300


BAD_INSTALLATIONS = [
    (None, "an installation must be a JSON object"),
    ([], "an installation must be a JSON object"),
    ({"token": "ExpoPushToken[a]", "tokn": 1}, "an installation has no field tokn"),
    ({"token": "ExpoPushToken[a\x1fb]"}, "token must be text of 1 to 4096 bytes without control characters"),
    *(
        ({"token": token}, "token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID")
        for token in (
            "", "a", "ExponentPushToken", "ExponentPushToken[]", "ExponentPushToken[a b]", "ExponentPushToken[a]]", "xExpoPushToken[a]",
            "ExpoPushToken[a]\n", "ExponentPushToken[" + "x" * 151 + "]", "0" * 36, "exponentpushtoken[a]", 7, ["ExpoPushToken[a]"],
        )
    ),
    *(({"provider": provider, "token": token}, complaint) for provider, complaint, *tokens in BAD_TOKENS for token in tokens),
    ({"token": "ab", "provider": "apns", "environment": "test"}, "environment must be production or sandbox"),
    ({"token": "ab", "provider": "apns", "environment": 7}, "environment must be production or sandbox"),
    ({"token": "ab", "provider": "fcm", "environment": "sandbox"}, "environment goes with provider apns alone"),
    *(
        ({"token": "ab", "provider": provider, "project": project},
         f"project must be text of 1 to 100 characters without a colon, with provider {provider}")
        for provider in ("fcm", "apns") for project in ("a:b", "x" * 101)
    ),
    ({"installation_id": "me"}, "installation_id must be a UUID"),
    ({"installation_id": 7}, "installation_id must be text of 1 to 36 characters"),
    ({"platform": "symbian"}, "platform must be ios, android, web or unknown"),
    ({"permission": "maybe"}, "permission must be granted, denied or undetermined"),
    ({"push_capable": "maybe"}, "push_capable must be true or false"),
    ({"provider": ""}, "provider must be text of 1 to 40 characters"),
    ({"project": "x" * 201}, "project must be text of 1 to 200 characters"),
    ({"locale": "x" * 36}, "locale must be text of 1 to 35 characters"),
    *(
        ({"timezone": zone}, f"timezone must be the IANA name of a time zone, such as America/Santiago, got {shown}")
        for zone, shown in (
            ("Nowhere/City", '"Nowhere/City"'), ("Nowhere/City5", '"Nowhere/City5"'), ("CLT", '"CLT"'), ("", '""'), (7, "7"),
            ("Etc/GMT+13", '"Etc/GMT+13"'), ("x/" * 40, '"' + "x/" * 15 + '…"'),
        )
    ),
    ({"owner": {"id": 7}}, "owner must be text of 1 to 200 characters"),
    ({"opt_outs": "news"}, "opt_outs must be a list of at most 100 texts of 1 to 100 characters"),
    ({"opt_outs": {"news": True}}, "opt_outs must be a list of at most 100 texts of 1 to 100 characters"),
    ({"opt_outs": ["x"] * 101}, "opt_outs must be a list of at most 100 texts of 1 to 100 characters"),
    ({"opt_outs": [None]}, "opt_outs must be a list of at most 100 texts of 1 to 100 characters"),
]  # fmt: skip

BAD_PREFERENCES = [
    ([], "a preference must be a JSON object"),
    ({"keyword": "aseo"}, "a preference has no field keyword"),
    ({"enabled": "yes"}, "enabled must be true or false"),
    ({"rubro_prefix": ""}, "rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code"),
    ({"rubro_prefix": "72%"}, "rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code"),
    ({"rubro_prefix": "7" * 21}, "rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code"),
    ({"tipo": ""}, "tipo must be text of 1 to 100 characters"),
    ({"region": "x" * 201}, "region must be text of 1 to 200 characters"),
    ({"region": 8}, "region must be text of 1 to 200 characters"),
    ({"monto_min": -1}, "monto_min must be a number between 0 and 999999999999999999"),
    ({"monto_min": "5"}, "monto_min must be a number between 0 and 999999999999999999"),
    ({"monto_max": 1e20}, "monto_max must be a number between 0 and 999999999999999999"),
    ({"monto_min": 5, "monto_max": 4}, "monto_min must not be above monto_max"),
    ({"moneda": "pesos"}, "moneda must be a currency of three capital letters, such as CLP"),
    ({"keywords": "aseo"}, "keywords must be a list of at most 20 texts of 1 to 100 characters"),
    ({"keywords": ["aseo", 7]}, "keywords must be a list of at most 20 texts of 1 to 100 characters"),
    ({"keywords": [""]}, "keywords must be a list of at most 20 texts of 1 to 100 characters"),
    ({"keywords": ["x"] * 21}, "keywords must be a list of at most 20 texts of 1 to 100 characters"),
    ({"keywords": ["x" * 101]}, "keywords must be a list of at most 20 texts of 1 to 100 characters"),
]


class TestInstallationsAndPreferences:
    """Installations and preferences."""

    def test_bad_installations_are_refused_by_name(self, conn) -> None:
        """Every bad registration is refused with a sentence that names the field, and nobody is registered."""
        for given, complaint in BAD_INSTALLATIONS:
            assert refusal(conn, "register_installation", Jsonb(given)) == complaint, given
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)

    def test_tokens_of_all_shapes_pass(self, conn) -> None:
        """Both words of Expo and a bare UUID are tokens."""
        for token in (
            "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]",
            "ExpoPushToken[abc-DEF_123]",
            "F5741A13-BCDA-434B-A316-5DC0E6FFA94F",
            "f5741a13-bcda-434b-a316-5dc0e6ffa94f",
        ):
            phone = relevo.register(conn, Installation(token))
            stored = "select token from relevo.device_installations where installation_id = %s"
            assert conn.execute(stored, [phone]).fetchone() == (token,)

    def test_bad_preferences_are_refused_by_name(self, conn) -> None:
        """Every bad preference is refused with a sentence that names the field, and the old one stands."""
        phone = relevo.register(conn, Installation("ExpoPushToken[a]"))
        relevo.set_preference(conn, phone, "work", Preference(keywords=["aseo"]))
        for given, complaint in BAD_PREFERENCES:
            assert refusal(conn, "set_preference", phone, "work", Jsonb(given)) == complaint, given
        assert refusal(conn, "set_preference", phone, "", Jsonb({})) == "name must be text of 1 to 100 characters"
        assert (
            refusal(conn, "set_preference", phone, "x" * 101, Jsonb({})) == "name must be text of 1 to 100 characters"
        )
        assert refusal(conn, "set_preference", phone, None, Jsonb({})) == "name must be text of 1 to 100 characters"
        stranger = UUID(int=7)
        assert (
            refusal(conn, "set_preference", stranger, "x", Jsonb({}))
            == f"there is no installation {stranger}; register it first"
        )
        rows = conn.execute("select name, keywords from relevo.notification_preferences order by name").fetchall()
        assert rows == [("default", None), ("work", ["aseo"])]

    def test_one_bad_phone_of_many_is_named(self, conn) -> None:
        """Whoever registers thousands is told which of them is refused, and none is registered."""
        phones = [Installation(f"ExpoPushToken[{n}]", owner="x" * (201 if n == 3 else 5)) for n in range(5)]
        with pytest.raises(InvalidInputError, match=r"^installations\.3: owner must be text"):
            relevo.register_many(conn, phones)
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)

    def test_python_hears_it_too(self, conn) -> None:
        """The Python door raises InvalidInputError for installations and preferences alike."""
        with pytest.raises(InvalidInputError, match="token must look like"):
            relevo.register(conn, Installation("nonsense"))
        phone = relevo.register(conn, Installation("ExpoPushToken[a]"))
        with pytest.raises(InvalidInputError, match="monto_min must not be above"):
            relevo.set_preference(conn, phone, "x", TenderPreference(monto_min=Decimal("5.50"), monto_max=5))

    def test_amounts_keep_their_cents(self, conn) -> None:
        """Amounts go in as they are: whole ones exactly, others to the cent."""
        phone = relevo.register(conn, Installation("ExpoPushToken[a]"))
        relevo.set_preference(
            conn, phone, "x", TenderPreference(monto_min=Decimal("1500.75"), monto_max=10**17 + 1, moneda="USD")
        )
        relevo.enqueue(conn, Event("t", "1", "t", audience=TenderMatching(monto=Decimal("120000000.10"), moneda="CLP")))
        row = conn.execute(
            "select monto_min, monto_max from relevo.notification_preferences where name = 'x'"
        ).fetchone()
        assert row == (Decimal("1500.75"), Decimal(10**17 + 1))
        assert conn.execute("select match_monto from relevo.notification_events").fetchone() == (
            Decimal("120000000.10"),
        )


NOT_SENT: list[tuple[str, Callable[[Any], object]]] = [
    ("an event must be a relevo.Event, got dict", lambda conn: relevo.enqueue(conn, GOOD)),  # type: ignore[arg-type]
    ("an installation must be a relevo.Inst", lambda conn: relevo.register(conn, "ExpoPushToken[a]")),  # type: ignore[arg-type]
    ("scheduled_at must lie between", lambda conn: relevo.enqueue(conn, scheduled(datetime(9999, 1, 1, tzinfo=UTC)))),
    ("installation_id must be a UUID", lambda conn: relevo.register(conn, Installation(None, "me"))),  # type: ignore[arg-type]
    ("token must be text of 1 to 4096", lambda conn: relevo.register(conn, Installation("x" * 4097))),
    ("token must look like", lambda conn: relevo.register(conn, Installation("ExponentPushToken[a b]"))),
    ("token must look like", lambda conn: relevo.register(conn, Installation("ExpoPushToken", uuid4()))),
    ("token must look like", lambda conn: relevo.register(conn, Installation("a", provider="expo"))),
    ("deadline_at must lie after", lambda conn: relevo.enqueue(conn, scheduled(NEXT_YEAR, deadline_at=NEXT_YEAR))),
    ("installation_id must be the UUID", lambda conn: relevo.set_preference(conn, "me", "x", None)),  # type: ignore[arg-type]
    ("installation_id must be the UUID", lambda conn: relevo.unregister(conn, "me")),  # type: ignore[arg-type]
    ("name must be text of 1 to 100", lambda conn: relevo.set_preference(conn, uuid4(), "x" * 101, Preference())),
    ("name must be text of 1 to 100", lambda conn: relevo.set_preference(conn, uuid4(), None, None)),  # type: ignore[arg-type]
    ("reason must be text", lambda conn: relevo.cancel(conn, 1, 5)),  # type: ignore[arg-type]
    ("topics must be a list", lambda conn: relevo.enqueue(conn, about(topics="news"))),
    ("topics must be a list", lambda conn: relevo.enqueue(conn, about(topics=5))),
    ("event cannot be written as JSON", lambda conn: relevo.enqueue(conn, about(data={"scores": Scores()}))),
    ("data.a must be a finite", lambda conn: relevo.enqueue(conn, about(data={"a": Decimal("sNaN")}))),
]


class Scores:
    """An array as others make them: it does not say whether it is empty."""

    def __bool__(self) -> bool:
        """Refuse to say."""
        raise ValueError("The truth value of an array is ambiguous.")


def about(**more: Any) -> Event:
    """Return an event for those whose preferences match."""
    return Event("t", "1", "Hello", audience=Matching(), **more)


def scheduled(at: datetime, deadline_at: datetime | None = None) -> Event:
    """Return an event for later."""
    return Event("t", "1", "Hello", scheduled_at=at, deadline_at=deadline_at, audience="everyone")


def test_the_callers_transaction_survives(dsn: str) -> None:
    """What Python can see is refused before a statement is sent: the caller's transaction goes on."""
    with psycopg.connect(dsn) as app:
        for complaint, call in NOT_SENT:
            with pytest.raises(InvalidInputError, match=f"^{complaint}"):
                call(app)
            assert app.execute("select 1").fetchone() == (1,), complaint


def test_a_wait_for_something_else_is_refused(dsn: str) -> None:
    """A wait is until all is sent or confirmed; a slip of the pen does not make it one of them."""
    with (
        psycopg.connect(dsn) as app,
        pytest.raises(InvalidInputError, match=r"^until must be sent or confirmed"),
    ):
        relevo.wait(app, 1, until="x")  # type: ignore[arg-type]


def test_a_name_of_a_megabyte_is_not_repeated(conn: psycopg.Connection[Any]) -> None:
    """A field that nobody knows is named, however long its name is, in a complaint that stays short."""
    for function in ["enqueue", "register_installation"]:
        said = refusal(conn, function, Jsonb({**GOOD, "x" * 1_000_000: 1}))
        assert "has no field" in said, function
        assert len(said) == 1_000, function


def test_python_does_not_repeat_it_either() -> None:
    """Before the database is asked the complaint is as short."""
    with pytest.raises(InvalidInputError) as caught:
        checks.refuse(f"an event has no field {'x' * 1_000_000}")
    assert len(caught.value.message) == 1_001
