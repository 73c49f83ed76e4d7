"""Dispatch by each native push service: claim, journal, a stream for each message, settle; the rate lifted.

And how that scales: replicas of their own processes send one event's pushes by FCM together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import requests

from bench import processes
from bench.environment import LIFTED, SQL, Environment, relevo_run, sandbox_settings
from bench.measuring import Cost, Goal, Row, middle, rate
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event, Installation
from relevo.core.known_services import LABELS, NATIVE, WITH_HOST
from relevo.providers.http2 import connection
from relevo.sandbox import push_service

_BATCH = 1_000
_PATIENCE_MS = 25_000
"""The sandbox takes longer than a push service: it checks, decrypts and shares these cores."""
_LIBRARY = connection.events.__name__.partition(".")[0]
_GOALS = {"h2": 300, "jh2": 200}
_ENCRYPTED_GOAL = 650
_REPLICAS = (1, 2, 4)
_LONGEST_S = 600.0


def _rows(sizes: Sizes, kind: str) -> Iterator[Row]:
    """Send an event to every phone of a push service, some times, and return what the middle one cost."""
    is_encrypted = kind in WITH_HOST  # each browser has keys of its own
    what = f"dispatch by {LABELS[kind]}{', encrypted' if is_encrypted else ''}, over {_LIBRARY}"
    most_ms = _ENCRYPTED_GOAL if is_encrypted else _GOALS[_LIBRARY]
    with sandbox_settings() as found, fresh_database() as (dsn, _):
        env = Environment(dsn, found["expo_base_url"], sizes)
        _lift_rate(Path(found["push_projects_file"]), kind)
        with closing(env.conn):
            _load(env, kind)
            with env.worker(**found, push_request_timeout_ms=_PATIENCE_MS) as built:
                costs = [_send(env, built) for _ in range(sizes.rounds + 1)]  # the first one connects
    yield rate(kind, what, middle(costs[1:]), Goal("worker_ms_per_1000", most_ms, "ms worker"))


def scaling(sizes: Sizes) -> Iterator[Row]:
    """One event for every Android phone, sent by one replica and by several, each in a process of its own."""
    with sandbox_settings() as found, fresh_database() as (dsn, _):
        env = Environment(dsn, found["expo_base_url"], sizes)
        _lift_rate(Path(found["push_projects_file"]), "fcm")
        with closing(env.conn):
            _load(env, "fcm")
            for count in _REPLICAS:
                what = f"FCM by {count} replica{'s' if count > 1 else ''}, over {_LIBRARY}"
                yield rate(f"scaling_{count}", what, _send_together(env, found, count))


def _send_together(env: Environment, found: dict[str, str], count: int) -> Cost:
    """Start replicas, let them connect, and measure how they send an event for everyone; fan-out is in it."""
    more: dict[str, Any] = {
        **found,
        "sources": "none",
        "http_enabled": "false",
        "push_request_timeout_ms": _PATIENCE_MS,
    }
    url = more.pop("expo_base_url")
    with ExitStack() as stack:
        replicas = [stack.enter_context(relevo_run(env.dsn, url, **more)) for _ in range(count)]
        _tell(env, f"first {count}")
        before = sum(processes.spent_ms(each.pid) for each in replicas)
        cost = env.meter.measure(lambda: _tell(env, f"by {count}"))
        spent = sum(processes.spent_ms(each.pid) for each in replicas) - before
        for each in replicas:
            each.terminate()  # all at once
    return replace(cost, worker_ms=spent)


def _tell(env: Environment, key: str) -> int:
    """Enqueue an event for everyone, and wait until all of it was taken."""
    event_id = verbs.enqueue(
        env.conn, Event("bench.scaling", key, "A title", "and a body", audience="everyone")
    ).event_id
    until = time.monotonic() + _LONGEST_S
    while (status := verbs.wait(env.conn, event_id)) is None or status.left_to_send:
        assert time.monotonic() < until, f"after {_LONGEST_S:.0f} s: {status}"
    assert status.deliveries == {"ok": env.sizes.native}, status
    return env.sizes.native


def _lift_rate(file: Path, kind: str) -> None:
    projects = json.loads(file.read_text(encoding="utf-8"))
    projects["default"][kind]["rate_per_second"] = LIFTED
    file.write_text(json.dumps(projects), encoding="utf-8")


def _load(env: Environment, kind: str) -> None:
    """Register phones, each with a token of the sandbox."""
    count, platform = env.sizes.native, push_service.of(kind).trial.platform
    say(f"  loading {count:,} phones …")
    with requests.Session() as session:
        session.trust_env = False
        make = _maker(session, env.url, kind)
        for start in range(0, count, _BATCH):
            names = [f"phone-{number}" for number in range(start, min(start + _BATCH, count))]
            some = [Installation(make(name), provider=kind, platform=platform) for name in names]
            verbs.register_many(env.conn, some)
    env.conn.execute(SQL["refresh"])


def _maker(session: requests.Session, url: str, kind: str) -> Callable[[str], str]:
    def make(name: str) -> str:
        asked: dict[str, Any] = {"service": kind, "name": name}
        return str(session.post(f"{url}/sandbox/tokens", json=asked, timeout=30).json()["token"])

    return make


def _send(env: Environment, built: App) -> Cost:
    """Queue an event for everyone, and measure how it is sent."""
    made = env.queue(built)
    cost = env.meter.measure(lambda: env.run(built, built.registry["dispatch"], "notifications_ok"))
    assert cost.count == made == env.sizes.native, f"{cost.count} of {made} were taken"
    return cost


ROWS: dict[str, Callable[[Sizes], Iterator[Row]]] = {
    **{name: partial(_rows, kind=name) for name in NATIVE},
    "scaling": scaling,
}
"""By the name that --only knows."""
