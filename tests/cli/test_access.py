"""`relevo serve`, `relevo token` and `relevo audit`, as an operator types them."""

from __future__ import annotations

import json
import signal
from functools import partial

import pytest
import requests

from relevo import app
from relevo.access import api_tokens, sessions, sign_on
from relevo.access.oidc import Attempt, Identity
from relevo.config import Settings
from relevo.config.sign_on import GroupRole
from support.processes import Processes, eventually
from support.relevo_command import Command


@pytest.fixture
def processes(dsn: str, tmp_path):
    """Start commands of the test's database; ended at the end."""
    started = Processes(dsn, tmp_path)
    yield started
    started.close()


def test_an_operator_lets_a_caller_in_and_out(processes: Processes) -> None:
    """Serve, make a token, call with it, see it used, revoke it, and find all of it in the record."""
    server = processes.relevo("serve")
    url = server.hears("http_serving")["url"]
    server.hears("worker_started")
    assert requests.get(f"{url}/health/live", timeout=60).status_code == 200
    not_ready = requests.get(f"{url}/health/ready", timeout=60)
    assert (not_ready.status_code, "relevo run" in not_ready.json()["checks"]["scheduler"]) == (503, True)

    made = processes.relevo("token", "make", "a dashboard", "--role", "viewer", "--days", "30", "--json")
    assert made.ends() == 0, made.stderr
    token = json.loads(made.stdout)
    headers = {"Authorization": f"Bearer {token['token']}"}
    assert requests.get(f"{url}/v1/ops/stats", headers=headers, timeout=60).status_code == 200
    listed = processes.relevo("token", "list", "--json")
    assert listed.ends() == 0
    [row] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["id"], row["state"], row["role"], bool(row["last_used_at"])) == (token["id"], "valid", "viewer", True)
    assert token["token"] not in listed.stdout

    revoked = processes.relevo("token", "revoke", token["id"])
    assert revoked.ends() == 0
    asked = partial(requests.get, f"{url}/v1/ops/stats", headers=headers, timeout=60)
    eventually(lambda: asked().status_code == 401, "the token is refused")
    again = processes.relevo("token", "revoke", token["id"])
    assert again.ends() == 2
    assert "relevo token list" in again.stderr

    told = processes.relevo("audit", "--json")
    assert told.ends() == 0
    entries = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(each["action"], each["outcome"], each["face"]) for each in entries] == [
        ("revoke_token", "failed", "cli"),
        ("revoke_token", "ok", "cli"),
        ("make_token", "ok", "cli"),
    ]
    assert "@" in entries[0]["actor"]
    assert token["token"] not in told.stdout + server.stderr
    server.signal(signal.SIGTERM)
    assert eventually(lambda: server.ends() == 0)


def test_a_token_is_for_its_project_and_its_days(command: Command) -> None:
    """What is said of a token when it is made is what it has: its role, its project, and how long; without it all, for ever."""
    made = {
        "both": ["--role", "app", "--project", "shop", "--days", "30"],
        "project": ["--role", "viewer", "--project", "cafe"],
        "neither": ["--role", "operator"],
    }
    for name, words in made.items():
        assert command("token", "make", name, *words).code == 0
    listed = {row["name"]: row for row in command("token", "list", "--json").lines}
    assert {name: (row["role"], row["project"], bool(row["expires_at"])) for name, row in listed.items()} == {
        "both": ("app", "shop", True),
        "project": ("viewer", "cafe", False),
        "neither": ("operator", None, False),
    }


def test_a_role_that_is_none_is_refused(processes: Processes) -> None:
    """An unknown role is wrong usage, and the known ones are named."""
    made = processes.relevo("token", "make", "x", "--role", "king")
    assert made.ends() == 2
    assert "app, observer, viewer, operator" in made.stderr


def test_a_person_who_was_revoked_is_restored(processes: Processes, settings: Settings) -> None:
    """A person of a provider of identities is revoked and restored by the id; a token that is nobody's person is not."""
    identity = Identity("https://login.example", "ana-1", "Ana", frozenset({"ops"}))
    with app.database(settings) as database:
        person = sign_on.sign_in(database, Attempt.begin("/dashboard"), identity, [GroupRole("ops", "viewer")])
        token = api_tokens.make(database, "wall", "viewer")[1]
    for command, code in (("restore", 2), ("revoke", 0), ("restore", 0)):
        assert processes.relevo("token", command, person.id).ends() == code, command
    assert processes.relevo("token", "revoke", token.id).ends() == 0
    refused = processes.relevo("token", "restore", token.id)
    assert refused.ends() == 2
    assert "There is no person" in refused.stderr
    listed = processes.relevo("token", "list", "--json")
    assert listed.ends() == 0
    rows = {row["name"]: row["state"] for row in map(json.loads, listed.stdout.splitlines())}
    assert rows == {"Ana (ana-1)": "valid", "wall": "revoked"}


def test_an_operator_lists_and_ends_sessions(processes: Processes, settings: Settings) -> None:
    """Sessions are listed without their cookies; one is ended by its id, those of a token, or all; what is wrong is told."""
    with app.database(settings) as database:
        tokens = [api_tokens.make(database, name, "viewer")[1] for name in ("wall", "ana")]
        cookies = [sessions.begin(database, token, address="192.0.2.7") for token in (*tokens, tokens[1])]
        listed = processes.relevo("sessions", "list", "--json")
        assert listed.ends() == 0, listed.stderr
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        assert sorted((row["name"], row["address"]) for row in rows) == [
            ("ana", "192.0.2.7"),
            ("ana", "192.0.2.7"),
            ("wall", "192.0.2.7"),
        ]
        assert not any(cookie in listed.stdout for cookie in cookies)
        [wall] = [row["id"] for row in rows if row["name"] == "wall"]
        assert processes.relevo("sessions", "end", wall).ends() == 0
        assert [sessions.verify(database, each) is not None for each in cookies] == [False, True, True]
        assert processes.relevo("sessions", "end", "--token", tokens[1].id).ends() == 0
        assert [sessions.verify(database, each) for each in cookies] == [None] * 3
    for wrong in ((), (wall,), (wall, "--all"), ("--token", "x")):
        assert processes.relevo("sessions", "end", *wrong).ends() == 2
    nobody = processes.relevo("sessions", "list")
    assert (nobody.ends(), "Nobody is logged in" in nobody.stdout) == (0, True)
