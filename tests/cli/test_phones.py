"""The commands about installations, rejects and grants: what they show, what they refuse, and how they leave."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import relevo
from relevo.client.values import Installation
from support.relevo_command import MARKUP, Command, Said


class TestInstallations:
    """relevo installations."""

    def test_none_yet(self, command: Command) -> None:
        """An empty list says how one comes into being."""
        said = command("installations")
        assert (said.code, said.out.startswith("No installations yet")) == (0, True)
        assert command("installations", "--json") == Said(0, "", "")

    def test_a_token_that_moved(self, command: Command, conn) -> None:
        """Of a phone whose token is another's by now list and explanation say so in words; the other one receives."""
        token, everyone = "ExponentPushToken[a]", relevo.Event("t", "1", "t", audience="everyone")
        former, owner = (relevo.register(conn, Installation(token, owner=name)) for name in ("ana", "bo"))
        moved = "its push token belongs to another installation now"
        said = {line.split()[0]: line for line in command("installations").out.splitlines()}
        assert f"no: {moved}" in said[str(former)]
        assert "yes" in said[str(owner)]
        assert relevo.explain(conn, everyone, former).reason == f"Pushes may not go to it: {moved}."
        assert relevo.explain(conn, everyone, owner).gets_it

    def test_who_receives_and_why_not(self, command: Command, conn) -> None:
        """Each line tells whether it receives, and if not why; no whole token is shown."""
        token = "ExponentPushToken[abcdefghijklmnopqrstuv]"
        relevo.register(conn, Installation(token, platform="ios"))
        relevo.register(conn, Installation("ExponentPushToken[b]", permission="denied", project=MARKUP))
        relevo.register(conn, Installation(None))
        relevo.register(conn, Installation("ExponentPushToken[c]", owner="ana"))
        relevo.block(conn, owner="ana")
        conn.execute(
            "update relevo.device_installations set invalidated_at = now(), invalid_reason = %s where platform = 'ios'",
            [MARKUP],
        )
        said = command("installations")
        assert said.code == 0
        assert token not in said.out
        assert f"no: {MARKUP}" in said.out
        assert "no: permission denied" in said.out
        assert "no: no token" in said.out
        assert "no: owner blocked" in said.out
        rows = command("installations", "--json").lines
        assert [row["receives"] for row in rows] == [False] * 4
        assert all(token not in str(row) for row in rows)
        assert [row["project"] for row in command("installations", "--json", "--project", MARKUP).lines] == [MARKUP]
        assert UUID(rows[0]["installation_id"])


class TestRejects:
    """relevo rejects."""

    @pytest.fixture
    def rejects(self, conn) -> psycopg.Connection[Any]:
        """Two open rejects and one that was mended."""
        conn.execute(
            """
            insert into relevo.ingest_rejects (source, place, reason, retry_at, resolved_at)
            values ('one', %(markup)s, %(markup)s, now() + interval '1 hour', null), ('two', 'there', 'unreadable', null, null),
                   ('one', 'mended', 'was bad', null, now())
            """,
            {"markup": MARKUP},
        )
        return conn

    def test_none(self, command: Command) -> None:
        """Nothing rejected is said."""
        assert command("rejects") == Said(0, "Nothing was rejected.\n", "")
        assert command("rejects", "--json") == Said(0, "", "")
        assert command("rejects", "--retry").out.startswith("0 rejects will be tried again")

    @pytest.mark.usefixtures("rejects")
    def test_what_and_why(self, command: Command) -> None:
        """Open ones are listed with place and reason as they are; mended ones are not."""
        said = command("rejects")
        assert said.out.count(MARKUP) == 2
        assert "mended" not in said.out
        assert [row["place"] for row in command("rejects", "--json", "--source", "two").lines] == ["there"]

    def test_trying_again(self, command: Command, rejects) -> None:
        """--retry makes them due at once: all, one source's, or one."""
        due = "select source from relevo.ingest_rejects where retry_at <= now() and resolved_at is null"
        reject_id = command("rejects", "--json", "--source", "two").lines[0]["id"]
        assert command("rejects", "--retry", "--id", reject_id).out.startswith("1 reject will be tried again")
        assert rejects.execute(due).fetchall() == [("two",)]
        assert command("rejects", "--retry", "--source", "one").out.startswith("1 reject will be tried again")
        assert len(rejects.execute(due).fetchall()) == 2
        assert command("rejects", "--retry", "--id", 4711).out.startswith("0 rejects will be tried again")


class TestGrant:
    """relevo grant."""

    def test_a_role(self, command: Command, conn, admin) -> None:
        """The role is named as it is and may call the door."""
        role = f"[bold]app {uuid4().hex[:6]}[/]"
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        said = command("grant", role)
        assert (said.code, said.out) == (0, f"{role} may now call relevo.enqueue and its kin.\n")
        may = conn.execute("select has_function_privilege(%s, 'relevo.enqueue(jsonb)', 'execute')", [role]).fetchone()
        assert may == (True,)
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    def test_an_apps_role_looks(self, command: Command, conn, admin, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A role that may only enqueue is told so, and which role may look; no statement of ours is quoted."""
        role = f"app_{uuid4().hex[:6]}"
        conn.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(role)))
        assert command("grant", role).code == 0
        monkeypatch.setenv("DATABASE_URL", make_conninfo(dsn, user=role, password="x"))
        for words in (["status"], ["events"], ["owner", "show", "ana"]):
            said = command(*words)
            assert (said.code, said.out) == (1, "")
            assert said.err.startswith(
                "relevo: The database role that DATABASE_URL names may not do this: permission denied for "
            )
            assert "`relevo grant ROLE --worker`" in said.err
            assert "LINE" not in said.err
        assert command("enqueue", "notice", "1", "--title", "Hi", "--everyone").code == 0
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    def test_nobody(self, command: Command) -> None:
        """A role that is not there is wrong usage."""
        said = command("grant", "[red]nobody")
        assert (said.code, said.out) == (2, "")
        assert "There is no role [red]nobody in this database." in said.err


def test_what_was_done_can_be_read_by_machines(command: Command, conn) -> None:
    """Each verb tells with --json in one object what it did: the same as its sentence, and nothing else."""
    phone = relevo.register(conn, Installation("ExponentPushToken[a]", owner="ana"))
    relevo.register(conn, Installation("ExponentPushToken[b]", owner="eva"))
    role = conn.execute("select current_user").fetchone()[0]
    conn.execute("insert into relevo.projects (project, filled_at) values ('p', now())")
    conn.execute("insert into relevo.event_streams (event_type, origin, known_since) values ('t', 'app', now())")
    later = ("--title", "Psst", "--owner", "ana", "--at", "2030-01-01")
    secret = command("token", "make", "x", "--role", "app", "--json").lines[0]
    told: list[tuple[tuple[object, ...], dict[str, Any]]] = [
        (
            ("enqueue", "t", "k", *later),
            {"event_id": 1, "created": True, "same_content": True, "unknown_installations": []},
        ),
        (("cancel", 1), {"event_id": 1, "cancelled": True, "withdrawn": True, "sent": 0, "claimed": 0}),
        (("pause", "receipt", "--reason", "x"), {"cycle": "receipt", "paused": True, "changed": True}),
        (("resume", "receipt"), {"cycle": "receipt", "paused": False, "changed": True}),
        (("grant", role), {"role": role, "worker": False}),
        (("release", "p"), {"project": "p", "released": False, "what": []}),
        (
            ("release", "--type", "t"),
            {"event_type": "t", "events": 0, "first_ids": [], "origins": [], "dropped": False},
        ),
        (("token", "revoke", secret["id"]), {"id": secret["id"], "name": "x", "revoked": True}),
        (("news", "subscribe", "n"), {"name": "n", "created": True}),
        (("news", "pause", "n"), {"name": "n", "paused": True}),
        (("news", "resume", "n"), {"name": "n", "paused": False}),
        (("news", "remove", "n"), {"name": "n", "removed": True, "forgotten": 0}),
        (("forget", phone), {"installation_id": str(phone), "installations": 1}),
        (("forget", "--owner", "eva"), {"owner": "eva", "installations": 1}),
    ]
    for words, expected in told:
        said = command(*words, "--json")
        assert (said.code, said.lines) == (0, [expected]), (words, said.err)
    [run] = command("run-cycle", "reaper", "--json").lines
    assert (run["cycle"], run["outcome"]) == ("reaper", "idle")
    ticked = command("tick", "--runners", "reaper,fanout", "--json").lines
    assert [each["cycle"] for each in ticked] == ["reaper", "fanout"]
