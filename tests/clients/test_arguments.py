"""The kits, Python and SQL name the arguments of a verb alike."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import relevo

ROOT = Path(__file__).resolve().parents[2]
KITS = ROOT / "server" / "clients"
VERBS = {
    "enqueue": ("enqueue", "enqueue", "enqueue", "enqueue"),
    "enqueue_many": ("enqueue_many", "enqueueMany", "enqueueMany", "enqueue_many"),
    "change": ("change", "change", None, "change"),
    "cancel": ("cancel", "cancel", "cancel", "cancel"),
    "complete": ("complete", "complete", "complete", "complete"),
    "get": ("get", "getEvent", "getEvent", "get_event"),
    "delete": ("delete", "deleteEvents", None, "delete_events"),
    "register": ("register", "register", "register", "register_installation"),
    "register_many": ("register_many", "registerMany", None, "register_many"),
    "list_installations": ("list_installations", "listInstallations", None, "list_installations"),
    "unregister": ("unregister", "unregister", "logOut", "unregister_installation"),
    "forget": ("forget", "forget", "deleteInstallation", "forget_installation"),
    "set_attributes": ("set_attributes", "setAttributes", "setAttributes", "set_attributes"),
    "get_attributes": ("get_attributes", "getAttributes", "getAttributes", "get_attributes"),
    "set_preference": ("set_preference", "setPreference", "setPreference", "set_preference"),
    "inbox": ("inbox", "inbox", "inbox", "inbox"),
    "inbox_counts": ("inbox_counts", "inboxCounts", "inboxCounts", "inbox_counts"),
    "mark_inbox": ("mark_inbox", "markInbox", "markInbox", "mark_inbox"),
    "mark_inbox_before": ("mark_inbox_before", "markInboxBefore", "markInboxBefore", "mark_inbox_before"),
}
"""Each verb in Python, @relevo/pg, @relevo/client (None: not over HTTP) and SQL."""
WHOSE = ("owner", "installation_id", "project")
OF_HTTP = {"as", "proof", "query"}
"""What only a call over HTTP has: who calls, and how long it waits."""
OF_PYTHON = {"on_conflict"}
"""SQL and HTTP have it as a field of the event."""
OF_INBOX = {"status", "category", "event_type", "before", "limit", "locale", "digest"}
"""Python's arguments that are fields of one object elsewhere."""
OWNERS_OWN = {"complete", "forget", "unregister"}
"""Verbs whose Python takes an owner in place of the first argument; SQL and @relevo/pg have a function of their own."""
SQL_NAMES = {
    "asked": "whose",
    "of_event": "event_id",
    "id_of_event": "event",
    "event_id": "event",
    "of_owner": "owner",
    "installation uuid": "installation_id",
    "most": "limit",
    "preference_name": "name",
}
"""Names in SQL that differ, for a function's argument may not be called as a column that it reads. They are released."""


def split(words: str) -> list[str]:
    """Split arguments at the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in words.replace("=>", "  "):
        depth += (letter in "({[<") - (letter in ")}]>")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def snake(name: str) -> str:
    """Write a name as Python and SQL do."""
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def of_typescript(file: Path, name: str) -> list[str]:
    """Return the arguments of a function or method, by its first signature; an object taken apart is its fields."""
    text = file.read_text(encoding="utf-8")
    begins = re.search(rf"^(?:export )?\s*(?:async )?(?:function )?{name}\(", text, re.MULTILINE)
    assert begins, f"{file.name} has no {name}"
    depth, end = 1, begins.end()
    while depth:
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    found = []
    for each in split(text[begins.end() : end - 1]):
        if each.startswith("{"):
            found += re.findall(r"(\w+)(?: = [^,}]+)?(?=[,}\s])", each[: each.index("}") + 1].replace('""', "0"))
        else:
            found.append(re.match(r"\w+", each)[0])  # type: ignore[index] # a name begins it
    return [snake(each) for each in found if each != "connection" and not each.isdigit()]


def of_sql(name: str) -> list[str]:
    """Return the arguments of a SQL function, by the names that the other roads have."""
    text = (ROOT / "sql" / "functions" / "client" / f"{name}.sql").read_text(encoding="utf-8")
    told = re.search(rf"function relevo\.{name}\((.*?)\)\s+returns", text, re.DOTALL)
    assert told, name
    return [SQL_NAMES.get(" ".join(each.split()[:2]), each.split()[0]) for each in split(told[1])]


def of_python(name: str) -> list[str]:
    """Return the arguments of a verb in Python; owner, installation_id and project together are `whose`."""
    names = [each for each in inspect.signature(getattr(relevo, name)).parameters if each != "connection"]
    if set(WHOSE) <= set(names):
        names = [*(each for each in names if each not in WHOSE), "whose"]
    return names


@pytest.mark.parametrize("verb", VERBS)
def test_the_kits_take_the_same_arguments_in_the_same_order(verb: str) -> None:
    """Who moves from @relevo/pg to @relevo/client, or back, changes no argument but the connection."""
    _, pg, client, _ = VERBS[verb]
    if client is None:
        return
    theirs = [each for each in of_typescript(KITS / "client" / "src" / "client.ts", client) if each not in OF_HTTP]
    ours = of_typescript(KITS / "pg" / "src" / "index.ts", pg)
    if verb == "inbox":  # one object; over HTTP it is the query
        assert (ours, theirs) == (["asked"], [])
        return
    assert theirs == ours


@pytest.mark.parametrize("verb", VERBS)
def test_python_and_sql_name_the_arguments_as_the_kits_do(verb: str) -> None:
    """An argument has one name on every road; where SQL cannot have it, the table above says which it has."""
    python, pg, _, sql = VERBS[verb]
    kit = set(of_typescript(KITS / "pg" / "src" / "index.ts", pg)) - {"asked"}
    said = set(of_python(python)) - OF_PYTHON
    if verb == "inbox":
        assert said == OF_INBOX | {"whose"}
        return
    if verb in OWNERS_OWN:
        said, kit = said - {"owner"}, kit - {"owner"}
    said = {{"what": "event"}.get(each, each) for each in said}
    assert said == kit
    named = {SQL_NAMES.get(each, each) for each in of_sql(sql)}
    if verb == "set_attributes":  # a field of what is asked
        named |= {"attributes"}
    if verb == "mark_inbox":
        named = {"event_id" if each == "event" else each for each in named}
    if verb == "delete":
        assert named == {"event_ids"}
    assert named == kit
