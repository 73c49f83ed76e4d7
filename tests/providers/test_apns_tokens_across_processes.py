"""Provider tokens of APNs across processes: all sign the same one, one of them renews it, and status names a long rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.sandbox import Sandbox
from support import mixed_phones
from support.senders import unb64
from support.sending_worker import Relay

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "apns_signing.py"


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True) as running:
        yield running


class Signer:
    """A process that signs tokens."""

    def __init__(self, dsn: str, sandbox: Sandbox) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), dsn, str(sandbox.projects_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, word: str) -> None:
        """Ask for a token, without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def token(self) -> str:
        """Wait for the token that was asked for."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def signer(dsn: str, sandbox: Sandbox) -> Iterator[Callable[[], Signer]]:
    """Start processes that sign tokens."""
    started: list[Signer] = []

    def start() -> Signer:
        started.append(Signer(dsn, sandbox))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def at_once(signers: list[Signer], word: str) -> set[str]:
    """Ask all at the same time, and return the tokens that they sign."""
    for each in signers:
        each.ask(word)
    return {each.token() for each in signers}


def make_older(conn: psycopg.Connection[Any], seconds: int) -> None:
    """Let the tokens of all keys have been issued so much earlier."""
    conn.execute("update relevo.apns_tokens set issued_at = issued_at - %s * interval '1 second'", [seconds])


def issued(conn: psycopg.Connection[Any]) -> int:
    """Return the only issue time there is."""
    [row] = conn.execute("select extract(epoch from issued_at)::bigint from relevo.apns_tokens").fetchall()
    return int(row[0])


def issue_time(tokens: set[str]) -> int:
    """Return when the token was issued that all processes signed."""
    [token] = tokens
    return int(json.loads(unb64(token.split(".")[1]))["iat"])


def test_processes_sign_the_same_token(signer, conn: psycopg.Connection[Any]) -> None:
    """Two processes have one token, whoever of them asks first, renews it, or was told that it expired."""
    both = [signer(), signer()]
    assert issue_time(at_once(both, "get")) == issued(conn)
    make_older(conn, 1_100)
    before = issued(conn)
    assert issue_time(at_once(both, "younger")) == before == issued(conn), "it is not twenty minutes old"
    make_older(conn, 200)
    assert issue_time(at_once(both, "younger")) == issued(conn) > before
    younger = issued(conn)
    assert issue_time(at_once(both, "younger")) == issue_time(at_once(both, "get")) == younger
    make_older(conn, 2_500)
    assert issue_time(at_once(both, "get")) == issued(conn) >= younger
    assert issue_time(at_once([signer()], "get")) == issued(conn), "a process that starts now uses it, too"


def test_two_keys_have_their_own_issue_times(conn: psycopg.Connection[Any]) -> None:
    """The key of another team, and another key of the same team, are issued and renewed by themselves."""
    issue = "select relevo.apns_issue_time(%s, %s, 2400)"
    first = [conn.execute(issue, key).fetchone() for key in (("a", "k"), ("b", "k"), ("a", "l"))]
    conn.execute("update relevo.apns_tokens set issued_at = issued_at - interval '1 hour' where team_id = 'b'")
    again = [conn.execute(issue, key).fetchone() for key in (("a", "k"), ("b", "k"), ("a", "l"))]
    assert (again[0], again[2]) == (first[0], first[2])
    assert conn.execute(
        "select count(*) from relevo.apns_tokens where issued_at > now() - interval '1 minute'"
    ).fetchone() == (3,)


def test_a_restart_sends_on_with_the_same_token(relay, sandbox: Sandbox) -> None:
    """Apple, who refuses a second token within twenty minutes, takes the pushes of two processes one after the other."""
    sandbox.set(apns_token_interval_s=1_200)
    workers: list[Relay] = [relay(**mixed_phones.addresses(sandbox)), relay(**mixed_phones.addresses(sandbox))]
    [phone] = mixed_phones.register(workers[0].conn, sandbox, ["iphone"], "ana").values()
    for worker in workers:
        worker.enqueue(audience=[phone])
        worker.fan_out()
        worker.dispatch()
    assert workers[0].states() == {"ok": 2}


def test_status_names_a_long_rest(relay, sandbox: Sandbox, command) -> None:
    """While Apple makes a project wait for its tokens, status says so, and until when."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox))
    [phone] = mixed_phones.register(worker.conn, sandbox, ["iphone"], "ana", "TooManyProviderTokenUpdates").values()
    worker.enqueue(audience=[phone], lane="urgent")
    worker.fan_out()
    worker.dispatch()
    said = " ".join(command("status").out.split())
    assert "sends nothing until" in said
    assert "asked Relevo to wait" in said
