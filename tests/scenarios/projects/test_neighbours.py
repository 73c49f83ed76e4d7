"""Projects beside projects: locked phones, locked rows and slow push services of some cost the others no time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.cycles import dispatch
from relevo.cycles.dispatch.claiming import Claiming
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay, beside, token

POOL = 6
"""How many connections of the pool a worker has by default."""
LONG_LOCK_S = 30
PATIENT = {
    "outbox_lease_duration_ms": 600_000,
    "database_lock_timeout_ms": LONG_LOCK_S * 1_000,
    "database_statement_timeout_ms": 60_000,
}
"""Whoever waits for a lock waits for longer than a push may take."""


def register_gone(worker: Relay, many: int) -> list[str]:
    """Register one phone in each of many projects, all of one owner name, that the push service calls gone."""
    names = [f"gone{n}!DeviceNotRegistered" for n in range(many)]
    for n, name in enumerate(names):
        worker.register(name, project=f"gone-{n}", owner="ana")
    return names


class TestOpenRegistrations:
    """An app that registers phones and leaves its transaction open."""

    def test_they_hold_up_no_other_project(self, relay, dsn: str) -> None:
        """While an app holds the phones of six projects, which are gone, all answers are written and nobody waits for it."""
        worker: Relay = relay()
        names = register_gone(worker, POOL)
        worker.register("ana", "bob", project="sound", owner="ana")
        worker.tell(*names, "ana")
        with psycopg.connect(dsn) as app, capture_logs() as lines:
            for n, name in enumerate(names):
                verbs.register(app, Installation(token(name), project=f"gone-{n}", owner="bob"))
            worker.dispatch()
            app.rollback()
        assert worker.states() == {"invalid": POOL, "sent": 1}
        assert "tokens_not_disabled" not in {line["event"] for line in lines}, "nobody waited for a lock"
        assert worker.disabled() == 0, "the app has them"

    def test_a_token_that_was_locked_is_disabled_by_a_later_answer(self, relay, dsn: str) -> None:
        """The next push to the same phones finds them free and disables their tokens; the other phone keeps its own."""
        worker: Relay = relay()
        names = register_gone(worker, 2)
        worker.tell(*names, "ana")
        with psycopg.connect(dsn) as app:
            app.execute("select from relevo.device_installations for update")
            worker.dispatch()
            app.rollback()
        assert worker.disabled() == 0
        worker.tell(*names, "ana")
        worker.dispatch()
        assert [worker.is_disabled(name) for name in (*names, "ana")] == [True, True, False]


def queue_for(worker: Relay, project: str, phones: list[str]) -> None:
    """Register phones of one project, all of one owner name, and queue a bulk push for each of them."""
    worker.register(*phones, project=project, owner="ana")
    worker.enqueue(audience=[worker.phones[name] for name in phones])
    worker.fan_out()


@contextmanager
def held_projects(dsn: str, names: list[str]) -> Iterator[psycopg.Connection[Any]]:
    """Hold the rows of projects locked in another session; they are free after the block."""
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.projects where project = any (%s) for update", [names])
        yield other
        other.rollback()


@contextmanager
def dispatching(worker: Relay) -> Iterator[None]:
    """Dispatch, run after run, while the block runs."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.02):
            worker.dispatch()

    with beside(go_on):
        try:
            yield
        finally:
            over.set()


def hold_answers(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have the push service answer projects named slow only once the returned event is set."""
    provider, answers = worker.app.services.providers["expo"], threading.Event()
    send = provider.send

    def held(messages: Any, project: str) -> Any:
        if project.startswith("slow"):
            answers.wait(PATIENCE_S)
        return send(messages, project)

    monkeypatch.setattr(provider, "send", held)
    return answers


class TestSlowProjects:
    """Projects whose push service takes seconds to answer."""

    def test_they_leave_a_place_for_a_push_of_another(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """Six slow projects have as many claims under way as a run allows; the first push of a seventh leaves all the same."""
        worker: Relay = relay(**PATIENT, push_request_timeout_ms=120_000, outbox_batch_size=1, push_chunk_size=1)
        for n in range(6):
            queue_for(worker, f"slow-{n}", [f"s{n}-{each}" for each in range(6)])
        answers = hold_answers(worker, monkeypatch)
        with beside(worker.dispatch) as reports:
            try:
                eventually(lambda: worker.claims() >= 32, "the slow projects have filled the run")
                queue_for(worker, "sound", ["ana"])
                eventually(lambda: worker.received("ana"), "the healthy push leaves", within=60)
            finally:
                answers.set()
        assert reports[0].outcome == "ok"
        worker.everyone_received(1)


class TestLockedProjects:
    """Projects whose rows somebody holds."""

    def test_fifty_of_them_hold_up_no_push_of_another(self, relay, dsn: str) -> None:
        """Fifty projects are due and locked: a push of another leaves long before a wait for a lock would end."""
        worker: Relay = relay(**PATIENT)
        names = [f"locked-{n}" for n in range(50)]
        worker.conn.execute(
            "insert into relevo.projects (project, filled_at) select unnest(%s::text[]), now()", [names]
        )
        for name in names:
            worker.register(f"of-{name}", project=name, owner="ana")
        worker.tell(*(f"of-{name}" for name in names))
        with held_projects(dsn, names) as other, beside(worker.dispatch):
            queue_for(worker, "sound", ["ana"])
            eventually(lambda: worker.received("ana"), "the healthy push leaves", within=LONG_LOCK_S - 10)
            assert worker.rows("select count(*) as n from relevo.due_chunks") == [{"n": 50}]
            other.rollback()
        worker.everyone_received(1)

    def test_those_locked_while_they_send_hold_up_no_push_of_another(self, relay, dsn: str) -> None:
        """More projects than the pool has connections are locked when their answers come: a push of another leaves."""
        worker: Relay = relay(**PATIENT, push_rate_per_second=600)
        names = [f"locked-{n}" for n in range(POOL + 2)]
        for name in names:
            queue_for(worker, name, [f"{name}-a!slow=2", f"{name}-b!DeviceNotRegistered"])
        with dispatching(worker):
            eventually(lambda: worker.claims() == len(names), "all of them are under way")
            with held_projects(dsn, names) as other:
                eventually(
                    lambda: worker.states().get("invalid") == len(names), "answers are written", LONG_LOCK_S - 10
                )
                queue_for(worker, "sound", ["ana"])
                eventually(lambda: worker.received("ana"), "the healthy push leaves", within=LONG_LOCK_S - 10)
                other.rollback()
        assert worker.states() == {"sent": len(names) + 1, "invalid": len(names)}

    def test_tokens_that_cannot_go_back_hold_up_no_next_run(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run ends though a thread of it still waits to give tokens back to a locked project."""
        waits: Future[None] = Future()
        monkeypatch.setattr(dispatch, "_GIVES_BACK_S", 0.05)
        monkeypatch.setattr(Claiming, "give_back_unused", lambda claiming: claiming.helpers.append(waits))
        worker: Relay = relay(**PATIENT)
        worker.tell("ana")
        with beside(worker.dispatch) as reports:
            try:
                eventually(lambda: reports, "the run ends", within=20)
            finally:
                waits.set_result(None)
        worker.everyone_received(1)
