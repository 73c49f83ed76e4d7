"""relevo inbox: what an operator sees of an owner's inbox."""

from __future__ import annotations

import json
from typing import Any

import psycopg

import relevo
from support.inboxes import sent
from support.phones import add_phones
from support.relevo_command import Command


def test_an_owner_s_inbox(command: Command, conn: psycopg.Connection[Any]) -> None:
    """Items come newest first with their marks, page by page, and the counts stand below."""
    [phone] = add_phones(conn, 1, owner="ana")
    events = [sent(conn, [phone], f"[red]Title {n}") for n in range(3)]
    relevo.mark_inbox(conn, events[2], "read", owner="ana")
    relevo.mark_inbox(conn, events[0], "archive", owner="ana")
    said = command("inbox", "ana", "--limit", 1)
    assert (said.code, "[red]Title 2" in said.out, "Title 1" in said.out) == (0, True, False)
    assert "1 unread, 1 unseen" in said.out
    before = said.out.rpartition("--before ")[2].split()[0]
    older = command("inbox", "ana", "--before", before).out
    assert ("[red]Title 1" in older, "Title 2" in older) == (True, False)
    told = command("inbox", "ana", "--status", "all", "--json").out.splitlines()
    assert [json.loads(line)["event_id"] for line in told] == events[::-1]
    assert "archived" in command("inbox", "ana", "--status", "archived").out


def test_whose_inbox(command: Command, conn: psycopg.Connection[Any]) -> None:
    """Nobody's is refused, as is an unknown installation; an unknown owner's is empty."""
    [phone] = add_phones(conn, 1)
    sent(conn, [phone], "Alone")
    sent(conn, [phone], "", body="Words without a title")
    told = command("inbox", "--id", str(phone)).out
    assert ("Alone" in told, "Words without a title" in told) == (True, True)
    assert command("inbox").code == 2
    assert command("inbox", "--id", "00000000-0000-0000-0000-000000000001").code == 2
    assert "The inbox is empty." in command("inbox", "nobody").out
    assert command("inbox", "ana", "--status", "new").code == 2
