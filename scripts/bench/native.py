"""Dispatch by FCM, APNs and Web Push: claim, journal, a stream for each message, settle; the rate lifted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import requests

from bench.measuring import Cost, Goal, Row, middle, rate
from bench.sizes import Sizes
from bench.stand import LIFTED, SQL, Stand, sandbox_settings
from benching import fresh_database, say
from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.providers import http2_connection

_BATCH = 1_000
_PATIENCE_MS = 25_000
"""The sandbox takes longer than a push service: it checks, decrypts and shares these cores."""
_PLATFORMS: dict[str, Literal["android", "ios", "web"]] = {"fcm": "android", "apns": "ios", "webpush": "web"}
_LIBRARY = http2_connection.events.__name__.partition(".")[0]
_GOALS = {"h2": 300, "jh2": 200}
_ENCRYPTED_GOAL = 650


def fcm(sizes: Sizes) -> Iterator[Row]:
    """Android phones."""
    yield from _rows(sizes, "fcm", f"dispatch by FCM, over {_LIBRARY}", _GOALS[_LIBRARY])


def apns(sizes: Sizes) -> Iterator[Row]:
    """iPhones."""
    yield from _rows(sizes, "apns", f"dispatch by APNs, over {_LIBRARY}", _GOALS[_LIBRARY])


def webpush(sizes: Sizes) -> Iterator[Row]:
    """Browsers, each with keys of its own."""
    yield from _rows(sizes, "webpush", f"dispatch by Web Push, encrypted, over {_LIBRARY}", _ENCRYPTED_GOAL)


def _rows(sizes: Sizes, kind: str, what: str, most_ms: float) -> Iterator[Row]:
    """Send an event to every phone of a kind, some times, and return what the middle one cost."""
    with sandbox_settings() as found, fresh_database() as (dsn, _):
        stand = Stand(dsn, found["expo_base_url"], sizes)
        _lift_rate(Path(found["push_projects_file"]), kind)
        with closing(stand.conn):
            _load(stand, kind)
            with stand.worker(**found, push_request_timeout_ms=_PATIENCE_MS) as built:
                costs = [_send(stand, built) for _ in range(sizes.rounds + 1)]  # the first one connects
    yield rate(kind, what, middle(costs[1:]), Goal("worker_ms_per_1000", most_ms, "ms worker"))


def _lift_rate(file: Path, kind: str) -> None:
    projects = json.loads(file.read_text(encoding="utf-8"))
    projects["default"][kind]["rate_per_second"] = LIFTED
    file.write_text(json.dumps(projects), encoding="utf-8")


def _load(stand: Stand, kind: str) -> None:
    """Register phones, each with a token of the sandbox."""
    count = stand.sizes.native
    say(f"  loading {count:,} phones …")
    with requests.Session() as session:
        session.trust_env = False
        make = _maker(session, stand.url, kind)
        for start in range(0, count, _BATCH):
            names = [f"phone-{number}" for number in range(start, min(start + _BATCH, count))]
            some = [Installation(make(name), provider=kind, platform=_PLATFORMS[kind]) for name in names]
            verbs.register_many(stand.conn, some)
    stand.conn.execute(SQL["refresh"])


def _maker(session: requests.Session, url: str, kind: str) -> Callable[[str], str]:
    def make(name: str) -> str:
        asked: dict[str, Any] = {"service": kind, "name": name}
        return str(session.post(f"{url}/sandbox/tokens", json=asked, timeout=30).json()["token"])

    return make


def _send(stand: Stand, built: App) -> Cost:
    """Queue an event for everyone, and measure how it is sent."""
    made = stand.queue(built)
    cost = stand.meter.measure(lambda: stand.run(built, built.registry["dispatch"], "notifications_ok"))
    assert cost.count == made == stand.sizes.native, f"{cost.count} of {made} were taken"
    return cost
