"""Registration: a token has one owner, a phone that comes back is on again, and what its user removed stays removed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners, TenderPreference
from relevo.core.errors import InvalidInputError
from support.processes import PATIENCE_S, eventually

TOKEN, OTHER = "ExponentPushToken[one]", "ExponentPushToken[two]"
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def phone(conn: psycopg.Connection[Any], installation_id: UUID) -> dict[str, Any]:
    """Read an installation with whether it may receive."""
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(
            "select i.*, relevo.may_receive(i) as receives from relevo.device_installations i where installation_id = %s",
            [installation_id],
        ).fetchone()
    assert row is not None
    return row


def names(conn: psycopg.Connection[Any], installation_id: UUID) -> list[str]:
    """Return the names of an installation's preferences."""
    rows = conn.execute(
        "select name from relevo.notification_preferences where installation_id = %s order by name", [installation_id]
    ).fetchall()
    return [row[0] for row in rows]


class TestRegister:
    """One installation after the other."""

    def test_a_new_phone(self, conn) -> None:
        """It may receive at once, and asks for everything until its user says otherwise."""
        one = relevo.register(conn, Installation(TOKEN, platform="ios", locale="es-CL", owner="7", opt_outs=["tips"]))
        row = phone(conn, one)
        assert row["receives"]
        assert (row["token"], row["token_version"], row["project"], row["provider"]) == (TOKEN, 1, "default", "expo")
        assert (row["platform"], row["locale"], row["owner"], row["opt_outs"]) == ("ios", "es-CL", "7", ["tips"])
        assert names(conn, one) == ["default"]
        assert conn.execute("select bucket from relevo.preference_index").fetchall() == [("*",)]

    def test_its_time_zone(self, conn) -> None:
        """A phone's zone is kept by its IANA name, stays when nothing is said of it, and goes when the phone takes it back."""
        one = relevo.register(conn, Installation(TOKEN, owner="7", timezone="America/Santiago"))
        relevo.register(conn, Installation(TOKEN, one))
        listed = conn.execute("select relevo.list_installations('7') -> 0 ->> 'timezone'").fetchone()
        assert (phone(conn, one)["timezone"], listed) == ("America/Santiago", ("America/Santiago",))
        for zone in ("UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "America/Port-au-Prince", None):
            given = Jsonb({"installation_id": str(one), "timezone": zone})
            conn.execute("select relevo.register_installation(%s)", [given])
            assert phone(conn, one)["timezone"] == zone

    def test_remove_takes_back_locale_and_time_zone(self, conn) -> None:
        """`REMOVE` removes what is stored of one field, None leaves it, and many are registered by the same rule."""
        given = {"locale": "es-CL", "timezone": "America/Santiago"}
        one = relevo.register(conn, Installation(TOKEN, owner="7", **given))
        for name in given:
            relevo.register(conn, Installation(TOKEN, one, locale=None, timezone=None))
            assert {each: phone(conn, one)[each] for each in given} == given, "None leaves them"
            relevo.register_many(conn, [Installation(TOKEN, one, **{name: relevo.REMOVE})])
            assert {each: phone(conn, one)[each] for each in given} == given | {name: None}
            relevo.register(conn, Installation(TOKEN, one, **given))
        with pytest.raises(InvalidInputError):
            relevo.register(conn, Installation(TOKEN, one, owner=relevo.REMOVE))  # type: ignore[arg-type]

    def test_the_same_again(self, conn) -> None:
        """Registering at every start changes nothing, and what is not told stays."""
        one = relevo.register(conn, Installation(TOKEN, platform="ios", owner="7", opt_outs=["tips"]))
        assert relevo.register(conn, Installation(TOKEN, one)) == one
        row = phone(conn, one)
        assert (row["token_version"], row["platform"], row["owner"], row["opt_outs"]) == (1, "ios", "7", ["tips"])
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (1,)

    def test_without_its_token(self, conn) -> None:
        """A phone that does not tell its token keeps the one it has; an explicit null takes it away."""
        one = relevo.register(conn, Installation(TOKEN))
        relevo.register(conn, Installation(None, one, locale="es-CL"))
        row = phone(conn, one)
        assert (row["token"], row["token_version"], row["locale"], row["receives"]) == (TOKEN, 1, "es-CL", True)
        conn.execute("select relevo.register_installation(%s)", [Jsonb({"installation_id": str(one), "token": None})])
        row = phone(conn, one)
        assert (row["token"], row["token_version"], row["receives"]) == (None, 2, False)

    def test_a_project_that_is_null_is_the_usual_one(self, conn) -> None:
        """A new phone with an owner and a null for its project is registered as one that names no project."""
        given = [{"token": TOKEN, "owner": "ana"}, {"token": f"{TOKEN[:-1]}2]", "owner": "ana", "project": None}]
        ids = [conn.execute("select relevo.register_installation(%s)", [Jsonb(each)]).fetchone()[0] for each in given]
        assert [phone(conn, one)["project"] for one in ids] == ["default", "default"]

    def test_a_phone_without_a_token_waits_for_one(self, conn) -> None:
        """It can be registered before it has a token, and receives once it tells one."""
        one = relevo.register(conn, Installation(None))
        assert not phone(conn, one)["receives"]
        relevo.register(conn, Installation(TOKEN, one))
        assert phone(conn, one)["receives"]

    def test_a_rotated_token(self, conn) -> None:
        """A new token for the same phone counts a version, so that a late verdict on the old one misses it."""
        one = relevo.register(conn, Installation(TOKEN))
        relevo.register(conn, Installation(OTHER, one))
        row = phone(conn, one)
        assert (row["token"], row["token_version"]) == (OTHER, 2)

    def test_a_token_moves_to_its_new_owner(self, conn) -> None:
        """Whoever registers a token has it; its former owner has none, is told why, and can come back."""
        one = relevo.register(conn, Installation(TOKEN))
        two = relevo.register(conn, Installation(TOKEN, owner="somebody else"))
        assert one != two
        former, owner = phone(conn, one), phone(conn, two)
        assert (former["token"], former["token_version"], former["invalid_reason"]) == (None, 2, "token_moved")
        assert not former["receives"]
        assert (owner["token"], owner["token_version"], owner["receives"]) == (TOKEN, 1, True)
        relevo.register(conn, Installation(OTHER, one))
        former = phone(conn, one)
        assert (former["token"], former["token_version"], former["invalid_reason"], former["receives"]) == (
            OTHER,
            3,
            None,
            True,
        )

    def test_coming_back_switches_on_again(self, conn) -> None:
        """An invalidated or inactive phone that registers its token receives again; without a token it stays invalid."""
        one = relevo.register(conn, Installation(TOKEN))
        conn.execute(
            "update relevo.device_installations set active = false, invalidated_at = now(), invalid_reason = 'DeviceNotRegistered'"
        )
        relevo.register(conn, Installation(None, one, locale="es-CL"))
        assert not phone(conn, one)["receives"]
        relevo.register(conn, Installation(TOKEN, one))
        row = phone(conn, one)
        assert (row["receives"], row["token_version"], row["invalid_reason"]) == (True, 1, None)

    def test_what_the_phone_may_not(self, conn) -> None:
        """A phone whose user said no, or that cannot, does not receive until it registers with a yes."""
        for reported in ({"permission": "denied"}, {"permission": "undetermined"}, {"push_capable": False}):
            one = relevo.register(conn, Installation(TOKEN, **reported))  # type: ignore[arg-type]
            assert not phone(conn, one)["receives"]
            relevo.register(conn, Installation(TOKEN, one))
            assert phone(conn, one)["receives"]

    def test_removed_preferences_stay_removed(self, conn) -> None:
        """The wildcard is written at the first registration only: who removed it is not asked again at every start."""
        one = relevo.register(conn, Installation(TOKEN))
        assert relevo.set_preference(conn, one, "default", None)
        relevo.register(conn, Installation(TOKEN, one))
        relevo.register(conn, Installation(OTHER, one))
        assert names(conn, one) == []
        assert conn.execute("select count(*) from relevo.preference_index").fetchone() == (0,)


class TestAtOnce:
    """Several phones in the same moment."""

    def at_once(self, dsn: str, *installations: Installation) -> list[Any]:
        """Let each register in a session of its own, all in the same moment."""
        start = threading.Barrier(len(installations))
        results: list[Any] = [None] * len(installations)

        def one(n: int, installation: Installation) -> None:
            try:
                with psycopg.connect(dsn) as app:
                    start.wait(PATIENCE_S)
                    results[n] = relevo.register(app, installation)
            except BaseException as error:  # noqa: BLE001 told by whoever looks at the results
                results[n] = error

        threads = [threading.Thread(target=one, args=each) for each in enumerate(installations)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        return results

    def test_two_phones_with_one_token(self, dsn: str, conn) -> None:
        """Both are registered, the token has one owner, and nobody fails on the unique index."""
        for round_ in range(5):
            token = f"ExponentPushToken[{round_}]"
            results = self.at_once(dsn, *[Installation(token)] * 4)
            assert all(isinstance(each, UUID) for each in results), results
            owners = conn.execute(
                "select count(*) from relevo.device_installations where token = %s", [token]
            ).fetchone()
            assert owners == (1,)

    def test_two_phones_that_swap_tokens(self, dsn: str, conn) -> None:
        """Neither waits for the other for ever."""
        one, two = relevo.register(conn, Installation(TOKEN)), relevo.register(conn, Installation(OTHER))
        for _ in range(10):
            here, there = phone(conn, one)["token"], phone(conn, two)["token"]
            wanted = [Installation(there or TOKEN, one), Installation(here or OTHER, two)]
            results = self.at_once(dsn, *wanted)
            assert results == [one, two]

    def test_one_phone_twice(self, dsn: str, conn) -> None:
        """A first registration that arrives twice is one phone with one wildcard."""
        one = uuid4()
        assert self.at_once(dsn, *[Installation(TOKEN, one)] * 4) == [one] * 4
        assert names(conn, one) == ["default"]
        assert phone(conn, one)["token_version"] == 1


class TestPreferences:
    """Several named ones per installation."""

    def test_set_change_remove(self, conn) -> None:
        """A preference is set as a whole: what is not given is a wildcard again; removing tells whether it was there."""
        one = relevo.register(conn, Installation(TOKEN))
        assert relevo.set_preference(
            conn, one, "work", TenderPreference(keywords=["aseo"], region="Ñuble", monto_min=5)
        )
        row = conn.execute(
            "select keywords, region, monto_min, moneda from relevo.notification_preferences where name = 'work'"
        ).fetchone()
        assert row == (["aseo"], "Ñuble", 5, "CLP")
        assert relevo.set_preference(conn, one, "work", TenderPreference(tipo="LE"))
        row = conn.execute(
            "select keywords, region, monto_min, moneda, tipo from relevo.notification_preferences where name = 'work'"
        ).fetchone()
        assert row == (None, None, None, None, "LE")
        assert names(conn, one) == ["default", "work"]
        assert relevo.set_preference(conn, one, "work", None)
        assert not relevo.set_preference(conn, one, "work", None)
        assert names(conn, one) == ["default"]

    def test_json_null_removes_too(self, conn) -> None:
        """Callers without an SQL null can say it in JSON; an empty list of keywords is a wildcard."""
        one = relevo.register(conn, Installation(TOKEN))
        conn.execute("select relevo.set_preference(%s, 'default', 'null')", [one])
        assert names(conn, one) == []
        conn.execute("""select relevo.set_preference(%s, 'x', '{"keywords": [], "enabled": null}')""", [one])
        row = conn.execute("select enabled, keywords from relevo.notification_preferences").fetchone()
        assert row == (True, None)


class TestIdempotence:
    """The same token and owner without the id is the same installation."""

    def test_token_and_owner_are_enough(self, conn) -> None:
        """An app that lost the id gets it again; another owner on the same phone is another installation, which takes the token."""
        ana = relevo.register(conn, Installation(TOKEN, owner="ana", platform="ios"))
        assert relevo.register(conn, Installation(TOKEN, owner="ana")) == ana
        assert phone(conn, ana)["platform"] == "ios"
        bea = relevo.register(conn, Installation(TOKEN, owner="bea"))
        assert bea != ana
        assert not phone(conn, ana)["receives"]
        nobody = relevo.register(conn, Installation(OTHER))
        assert relevo.register(conn, Installation(OTHER)) == nobody
        relevo.unregister(conn, nobody)
        assert not phone(conn, nobody)["receives"]
        assert relevo.register(conn, Installation(OTHER)) == nobody
        assert phone(conn, nobody)["receives"]


class TestRegisterMany:
    """Many in one statement, each as if it came alone."""

    def test_the_same_as_one_by_one(self, conn) -> None:
        """New ones, known ones, moved and swapped tokens and repeats in one list come to what they come to one by one."""
        ids = [uuid4() for _ in range(6)]
        before = [
            Installation("ExpoPushToken[a]", ids[0], owner="ana", platform="ios"),
            Installation("ExpoPushToken[b]", ids[1], opt_outs=["tips"]),
            Installation("ExpoPushToken[c]", ids[2], owner="eva"),
        ]
        given = [
            Installation("ExpoPushToken[b]", ids[0]),
            Installation("ExpoPushToken[a]", ids[1], locale="es"),
            Installation("ExpoPushToken[c]", owner="eva", project="shop"),
            Installation("ExpoPushToken[d]", ids[3], permission="denied"),
            Installation("ExpoPushToken[d]", ids[4]),
            Installation("ExpoPushToken[e]", ids[3]),
            Installation(None, ids[0], owner="bea", push_capable=False),
            Installation("https://x.example/hook", ids[5], provider="webhook"),
        ]
        stories = []
        for many in (False, True):
            with conn.transaction(force_rollback=True):
                for each in before:
                    relevo.register(conn, each)
                made = relevo.register_many(conn, given) if many else [relevo.register(conn, each) for each in given]
                rows = conn.execute(
                    """
                    select installation_id, token, token_version > 1, provider, project, platform, locale, owner, push_capable, permission, opt_outs,
                           active, invalid_reason, array(select name from relevo.notification_preferences p
                                                          where p.installation_id = i.installation_id)
                      from relevo.device_installations i order by installation_id
                    """
                ).fetchall()
                stories.append((made, rows))
        assert stories[0] == stories[1]
        assert stories[0][0][2] == ids[2]

    def test_many_at_once(self, conn) -> None:
        """Thousands are registered in order, again they are the same, and each asks for everything."""
        given = [Installation(f"ExponentPushToken[{n}]", owner=f"user-{n}") for n in range(3_000)]
        made = relevo.register_many(conn, given)
        assert len(set(made)) == 3_000
        assert relevo.register_many(conn, given) == made
        (row,) = conn.execute("select owner from relevo.device_installations where installation_id = %s", [made[77]])
        assert row == ("user-77",)
        assert conn.execute("select count(*) from relevo.preference_index").fetchone() == (3_000,)
        assert relevo.register_many(conn, []) == []

    def test_one_bad_one_spoils_the_list(self, conn) -> None:
        """Nobody is registered, and the fault is named."""
        with pytest.raises(InvalidInputError, match="token must look like"):
            relevo.register_many(conn, [Installation(TOKEN), Installation("nonsense")])
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)

    def test_somebody_takes_a_token_meanwhile(self, conn, dsn: str) -> None:
        """A long list that waits for whoever is claiming one of its tokens takes it over once that is committed."""
        given = [Installation(f"ExponentPushToken[{n}]") for n in range(30)]
        made: list[UUID] = []
        with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as mine:
            theirs = relevo.register(other, Installation("ExponentPushToken[7]", owner="ana"))
            thread = threading.Thread(target=lambda: made.extend(relevo.register_many(mine, given)))
            thread.start()
            ask = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            eventually(lambda: conn.execute(ask).fetchone() == (1,), "the list waits")
            other.commit()
            thread.join(PATIENCE_S)
        assert len(set(made)) == 30
        assert phone(conn, theirs)["invalid_reason"] == "token_moved"
        assert phone(conn, made[7])["receives"]

    def test_a_long_list_keeps_nobody_else_waiting(self, conn, dsn: str) -> None:
        """While an app's transaction with a long list is open, other phones, other long lists and other owners' choices go through."""
        relevo.set_category(conn, "offers")
        lists = [
            [Installation(f"ExponentPushToken[{app}-{n}]", owner=f"{app}-{n}") for n in range(30)] for app in "abc"
        ]
        relevo.register(conn, Installation(OTHER, owner="ana"))
        with psycopg.connect(dsn) as app:
            relevo.register_many(app, lists[0])
            conn.execute("set lock_timeout = '5s'")
            relevo.register_many(conn, lists[1])
            relevo.choose(conn, "offers", owner="ana", wanted=False)
            app.commit()
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (61,)

    def test_a_choice_waits_for_the_list_that_has_its_owner(self, conn, dsn: str) -> None:
        """A choice of an owner whose phone a long list is registering holds for that phone, too."""
        relevo.set_category(conn, "offers")
        given = [Installation(f"ExponentPushToken[{n}]", owner=f"user-{n}") for n in range(30)]
        with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
            made = relevo.register_many(app, given)
            choosing = pool.submit(relevo.choose, other, "offers", owner="user-7", wanted=False)
            eventually(lambda: choosing.done() or conn.execute(WAITING).fetchone() == (1,), "it waits")
            assert not choosing.done()
            app.commit()
            choosing.result(PATIENCE_S)
        refused = "select refused from relevo.device_installations where installation_id = %s"
        assert conn.execute(refused, [made[7]]).fetchone() == (["offers"],)

    def test_lists_that_repeat_each_others_tokens(self, dsn: str, conn) -> None:
        """Lists that name phones and tokens twice, in opposite orders, end without an error in every caller."""
        one, two = uuid4(), uuid4()
        lists = [
            [Installation(f"ExponentPushToken[{token}]", phone) for phone, token in named]
            for named in (((one, "a"), (one, "z"), (two, "b")), ((two, "z"), (two, "a"), (one, "b")))
        ]
        began = threading.Barrier(len(lists))

        def register(given: list[Installation]) -> None:
            with psycopg.connect(dsn, autocommit=True, options="-c deadlock_timeout=10ms") as on:
                began.wait(PATIENCE_S)
                for _ in range(100):
                    relevo.register_many(on, given)

        with ThreadPoolExecutor(len(lists)) as pool:
            for each in [pool.submit(register, given) for given in lists]:
                each.result(PATIENCE_S)

    def test_a_deadlock_is_tried_again_inside(self, dsn: str, conn) -> None:
        """Where another transaction waits for what a list holds, and the list for what that one holds, the list gives way and goes on."""
        one, two = relevo.register_many(conn, [Installation(TOKEN), Installation(OTHER)])
        again = [Installation(TOKEN, one), Installation(OTHER, two)]
        order = sorted([one, two])
        lock = "select from relevo.device_installations where installation_id = %s for update"
        with (
            psycopg.connect(dsn, options="-c deadlock_timeout=1h") as other,
            psycopg.connect(dsn, autocommit=True, options="-c deadlock_timeout=100ms") as mine,
            ThreadPoolExecutor(2) as pool,
        ):
            other.execute(lock, [order[1]])
            registering = pool.submit(relevo.register_many, mine, again)
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "the list holds the first and waits")
            crosswise = pool.submit(other.execute, lock, [order[0]])
            crosswise.result(PATIENCE_S)
            other.commit()
            assert registering.result(PATIENCE_S) == [one, two]


class TestOwner:
    """What an app does with a person's phones."""

    def test_list_and_log_out(self, conn) -> None:
        """The owner's phones are listed without their tokens, newest first; logged out they receive nothing until they come back."""
        one = relevo.register(conn, Installation(TOKEN, owner="ana"))
        two = relevo.register(conn, Installation(OTHER, owner="ana", permission="denied"))
        relevo.register(conn, Installation("ExpoPushToken[b]", owner="bea"))
        listed = relevo.list_installations(conn, owner="ana")
        assert [(each.installation_id, each.receives, each.why_not) for each in listed] == [
            (two, False, "permission denied"), (one, True, None),
        ]  # fmt: skip
        assert TOKEN not in str(listed)
        assert relevo.unregister(conn, owner="ana") == 2
        assert relevo.unregister(conn, one) == 0
        assert [each.why_not for each in relevo.list_installations(conn, owner="ana")] == ["unregistered"] * 2
        assert relevo.register(conn, Installation(TOKEN, owner="ana")) == one
        assert relevo.list_installations(conn, owner="ana")[1].receives
        assert len(relevo.list_installations(conn, owner="ana", limit=1)) == 1

    def test_forget(self, conn) -> None:
        """Phones, name and what was said to the owner alone are gone; what others got as well stays, without the name."""
        one = relevo.register(conn, Installation(TOKEN, owner="ana"))
        alone = relevo.enqueue(conn, Event("chat", "secret", "For Ana", audience=Owners("ana"), topics=()))
        shared = relevo.enqueue(conn, Event("chat", "both", "For both", audience=Owners("ana", "bea")))
        relevo.complete(conn, shared.event_id, owner="ana")
        assert relevo.forget(conn, owner="ana") == 1
        assert relevo.list_installations(conn, owner="ana") == []
        rows = conn.execute("select id, title, state from relevo.notification_events order by id").fetchall()
        assert rows == [(alone.event_id, "forgotten", "cancelled"), (shared.event_id, "For both", "waiting")]
        assert conn.execute("select owner from relevo.event_owners").fetchall() == [("bea",)]
        assert conn.execute("select count(*) from relevo.event_completions").fetchone() == (0,)
        again = relevo.enqueue(conn, Event("chat", "secret", "For Ana", audience=Owners("ana")))
        assert (again.event_id, again.created) == (alone.event_id, False)
        assert relevo.forget(conn, owner="ana") == relevo.forget(conn, one) == 0

    def test_one_must_be_named(self, conn) -> None:
        """Neither or both of installation and owner are refused."""
        for verb in (relevo.unregister, relevo.forget):
            for wrong in ({}, {"installation_id": uuid4(), "owner": "ana"}):
                with pytest.raises(InvalidInputError, match="needs an installation or an owner"):
                    verb(conn, **wrong)  # type: ignore[arg-type]
