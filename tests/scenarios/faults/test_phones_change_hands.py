"""Phones change hands, owners choose and are forgotten, while workers send and connections die: nobody is told another's, nothing is lost.

Each phone has a token of its own for each owner, as a phone has that is set up anew: so a push says whom it reached.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo import Event, Installation, Owners
from relevo.app import App
from relevo.client import consent
from relevo.core.errors import DatabaseUnavailableError, RelevoError
from relevo.sandbox import Sandbox
from support import soak

OWNERS, GONE, PROJECTS = ("ana", "bea"), "carla", ("default", "shop")
CYCLES = ("fanout", "dispatch", "digest", "reaper", "receipt")
EVENTS = 24
VICTIMS = """
select pg_terminate_backend(a.pid) from pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend' and a.state <> 'idle'
 order by random() limit 1
"""
LEFT = """
select (select count(*) from relevo.event_owners where owner = %(owner)s), (select count(*) from relevo.inboxes where owner = %(owner)s),
       (select count(*) from relevo.device_installations where owner = %(owner)s), (select count(*) from relevo.consents where owner = %(owner)s),
       (select count(*) from relevo.owner_rules where owner = %(owner)s), (select count(*) from relevo.notification_events where title like '%%' || %(owner)s || '%%')
"""
CROSSED = """
select count(*) from relevo.notification_deliveries d join relevo.inboxes b on b.id = d.inbox_id join relevo.notification_events e on e.id = d.notification_event_id
 where e.event_type = 'note' and e.title <> 'forgotten' and e.title not like 'for ' || b.owner || ' in ' || b.project || ' %%'
"""


class World:
    """People who do something each on a connection of their own, again and again until it is known to be done."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn, self.dice = dsn, random.Random(seed)
        self.phones = [UUID(int=self.dice.getrandbits(128), version=4) for _ in range(4)]
        self.told: list[tuple[str, str, str]] = []
        self.done = threading.Event()
        self.wrong: list[BaseException] = []

    def surely(self, do: Callable[[psycopg.Connection[Any]], object]) -> None:
        """Do something until the database says that it is done; each thing may be done twice."""
        while True:
            with suppress(psycopg.OperationalError, psycopg.errors.DeadlockDetected, DatabaseUnavailableError):
                with psycopg.connect(self.dsn, autocommit=True) as conn, conn.transaction():
                    do(conn)
                return

    def hand_over(self, conn: psycopg.Connection[Any], dice: random.Random) -> None:
        """A phone gets an owner, who likes digests or not, in quiet hours or not."""
        phone, owner, project = dice.choice(self.phones), dice.choice(OWNERS), dice.choice(PROJECTS)
        token = f"ExponentPushToken[{phone}-{owner}-{project}]"
        relevo.register(conn, Installation(token, installation_id=phone, owner=owner, project=project, timezone="UTC"))
        if dice.random() < 0.3:
            consent.choose(conn, owner=owner, project=project, category="offers", wanted=dice.random() < 0.5)

    def change(self, seed: int) -> None:
        """Hand phones over until the end."""
        dice = random.Random(seed)
        while not self.done.is_set():
            self.surely(lambda conn: self.hand_over(conn, dice))

    def kill(self) -> None:
        """End connections at random until the end."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while not self.done.wait(0.05):
                conn.execute(VICTIMS)

    def work(self, worker: App) -> None:
        """Run all cycles until the end, whatever becomes of their connections."""
        while not self.done.is_set():
            for cycle in CYCLES:
                with suppress(psycopg.Error, RelevoError):
                    worker.runner.run(worker.registry[cycle], "schedule")

    def tell(self, number: int) -> None:
        """Enqueue an event for an owner, once, and now and then forget somebody who was told something."""
        owner, project = self.dice.choice(OWNERS), self.dice.choice(PROJECTS)
        title = f"for {owner} in {project} {number}"
        self.surely(
            lambda conn: relevo.enqueue(
                conn, Event("note", str(number), title, audience=Owners(owner), project=project)
            )
        )
        self.told.append((owner, project, title))
        if number % 6 == 0:
            token = f"ExponentPushToken[gone-{number}]"
            self.surely(lambda conn: relevo.register(conn, Installation(token, owner=GONE)))
            gone = Event("note", f"gone {number}", f"for {GONE} in default", audience=Owners(GONE))
            self.surely(lambda conn: relevo.enqueue(conn, gone))
            self.surely(lambda conn: consent.choose(conn, owner=GONE, category="offers", wanted=True))
            self.surely(lambda conn: relevo.forget(conn, owner=GONE))

    def play(self, workers: list[App]) -> None:
        """Let all of it happen at once until everything was told."""
        doings: list[Callable[[], None]] = [lambda: self.change(1), lambda: self.change(2), self.kill]
        doings += [lambda worker=worker: self.work(worker) for worker in workers]  # type: ignore[misc]
        threads = [threading.Thread(target=self._noted(doing)) for doing in doings]
        for thread in threads:
            thread.start()
        try:
            for number in range(EVENTS):
                self.tell(number)
        finally:
            self.done.set()
            for thread in threads:
                thread.join(60)
        assert self.wrong == []

    def _noted(self, doing: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                doing()
            except BaseException as error:  # noqa: BLE001 the test's own thread tells it
                self.wrong.append(error)

        return run


def settle(conn: psycopg.Connection[Any], worker: App) -> None:
    """Run the cycles until nothing is due."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        conn.execute("update relevo.due_chunks set due_at = now() where due_at > now()")
        outcomes = {worker.runner.run(worker.registry[cycle], "manual").outcome for cycle in CYCLES}
        left = conn.execute(
            "select count(*) from relevo.notification_deliveries where status in ('pending', 'retryable')"
        ).fetchone()
        if outcomes <= {"idle", "ok"} and left == (0,):
            return
    raise AssertionError("something is left")


@pytest.mark.parametrize("seed", range(soak.cases(1, whole=40)))
def test_nobody_is_told_another_s(
    build: Callable[..., App], conn: psycopg.Connection[Any], dsn: str, seed: int
) -> None:
    """After all of it each owner's inbox has all that was for the owner in the project, once; every push reached the owner it was for; and of who was forgotten nothing is left."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as sandbox:
        consent.set_category(conn, "offers", rule="on")
        settings = {"expo_base_url": sandbox.url, "outbox_lease_duration_ms": 3_000, "push_rate_per_second": 0}
        workers = [build(worker_id=f"w{number}", **settings) for number in range(2)]
        world = World(dsn, seed)
        world.play(workers)
        settle(conn, workers[0])
        for phone in world.phones:
            for owner in OWNERS:
                for project in PROJECTS:
                    got = sandbox.received(f"ExponentPushToken[{phone}-{owner}-{project}]")
                    assert [
                        each["title"] for each in got if not each["title"].startswith(f"for {owner} in {project} ")
                    ] == []
        for owner in OWNERS:
            for project in PROJECTS:
                found = [item.title for item in relevo.inbox(conn, owner=owner, project=project, limit=200).items]
                assert sorted(found) == sorted(title for to, of, title in world.told if (to, of) == (owner, project))
        assert conn.execute(CROSSED).fetchone() == (0,)
        assert conn.execute(LEFT, {"owner": GONE}).fetchone() == (0,) * 6
