"""Runs cycles that send, in processes that kill or stop themselves at named moments.

Reads one task per line, as JSON, and answers each with two lines: the process id of the process that runs it, and, once
that is over, the signal that ended it and how often each moment came. A moment is a named statement, the COMMIT of a
transaction (named after its last named statement), a request to a push service, or the instant at which such a
request is written and its answer is not yet read; of requests of many streams also the instant at which some of them
are answered. Each task has a process of its own, forked from this one, which has
imported everything and connected to nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from relevo import app, config
from relevo.core import logs, queries
from relevo.core.known_services import NATIVE
from relevo.database import pool
from relevo.providers.expo import provider as expo
from relevo.providers.http2.authorised import AuthorisedProvider
from relevo.providers.http2.connection import Http2Connection, events
from relevo.providers.http2.provider import Http2Provider
from relevo.providers.http_connection import HttpConnection

for _name in NATIVE:
    import_module(f"relevo.providers.{_name}.provider")
STEPS = ("claims", "journal", "settle", "receipts", "dispatch", "projects", "digest")
NAMES = {body: f"{step}.{name}" for step in STEPS for name, body in queries.load(step).items()}


class Watch:
    """Counts the moments of this process as they come, and sends it a signal at some of them."""

    def __init__(self, strikes: Sequence[Mapping[str, Any]]) -> None:
        self._strikes = strikes
        self._guard = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.alone: dict[str, bool] = {}
        """Whether a statement was carried out by itself each time, and so is committed with its answer."""
        self._mine = threading.local()

    def before(self, name: str) -> int:
        """Note that something begins; return how often it did."""
        with self._guard:
            self.counts[name] += 1
            nth = self.counts[name]
        self._meet(name, nth, "before")
        return nth

    def after(self, name: str, nth: int) -> None:
        """Note that something is done."""
        self._meet(name, nth, "after")

    def _meet(self, name: str, nth: int, when: str) -> None:
        for strike in self._strikes:
            if (strike["name"], strike["nth"], strike["when"]) == (name, nth, when):
                # To this very thread: one sent to the process may let it go on for an instant.
                signal.pthread_kill(threading.get_ident(), signal.Signals[strike.get("signal", "SIGKILL")])

    def install(self) -> None:
        """Put itself around statements, transactions and requests."""
        psycopg.Cursor.execute = self._around(psycopg.Cursor.execute, self._statement)  # type: ignore[method-assign]
        pool.Database.begin = self._around_commit(pool.Database.begin)  # type: ignore[method-assign]
        expo.Expo.send = self._around(expo.Expo.send, lambda *_: "POST send")  # type: ignore[method-assign]
        expo.Expo.fetch_receipts = self._around(expo.Expo.fetch_receipts, lambda *_: "POST receipts")  # type: ignore[method-assign]
        HttpConnection.send = self._around(HttpConnection.send, lambda *_: "POST written")  # type: ignore[method-assign]
        for service in [*Http2Provider.__subclasses__(), *AuthorisedProvider.__subclasses__()]:
            if service is AuthorisedProvider:
                continue
            service.send = self._around_streams(service.send, f"POST {service.name}")  # type: ignore[method-assign]
        Http2Connection.begin = self._around_begin(Http2Connection.begin)  # type: ignore[method-assign]
        Http2Connection._write = self._around(Http2Connection._write, self._written)  # type: ignore[method-assign]
        Http2Connection.transfer = self._around_transfer(Http2Connection.transfer)  # type: ignore[method-assign]

    def _around(self, call: Callable[..., Any], name_of: Callable[..., str | None]) -> Callable[..., Any]:
        def watched(it: Any, *args: Any, **kwargs: Any) -> Any:
            name = name_of(it, *args)
            if name is None:
                return call(it, *args, **kwargs)
            nth = self.before(name)
            result = call(it, *args, **kwargs)
            self.after(name, nth)
            return result

        return watched

    def _statement(self, cursor: Any, query: Any, *_: Any) -> str | None:
        name = NAMES.get(query) if isinstance(query, bytes) else None
        if name is not None:
            cursor.connection.last_named = name
            is_idle = cursor.connection.info.transaction_status == TransactionStatus.IDLE
            self.alone[name] = self.alone.get(name, True) and is_idle
        return name

    def _around_streams(self, send: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Watch a request of many streams, and remember in its thread whose it is."""

        def named(it: Any, *args: Any, **kwargs: Any) -> Any:
            self._mine.request, self._mine.begun = name, False
            try:
                return send(it, *args, **kwargs)
            finally:
                self._mine.request = None

        return self._around(named, lambda *_: name)

    def _around_begin(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        def watched(it: Any, *args: Any, **kwargs: Any) -> Any:
            self._mine.begun = True
            return begin(it, *args, **kwargs)

        return watched

    def _written(self, *_: Any) -> str | None:
        """Name the instant at which streams of a request are written, and no answer of theirs is read."""
        name = getattr(self._mine, "request", None)
        return f"{name} written" if name and self._mine.begun else None

    def _around_transfer(self, transfer: Callable[..., Any]) -> Callable[..., Any]:
        def watched(it: Any, *args: Any, **kwargs: Any) -> Any:
            met = transfer(it, *args, **kwargs)
            name = getattr(self._mine, "request", None)
            if name and any(isinstance(each, events.StreamEnded) for each in met):
                self.after(f"{name} answered in part", self.before(f"{name} answered in part"))
            return met

        return watched

    def _around_commit(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def watched(database: Any, connection: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
            connection.last_named, name, nth = None, None, 0
            with begin(database, connection, *args, **kwargs):
                yield
                name = connection.last_named and f"COMMIT of {connection.last_named}"
                nth = self.before(name) if name else 0
            if name is not None:
                self.after(name, nth)

        return watched


def run(task: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
    """Run one cycle once, by hand, and return how it ended."""
    watch.install()
    with app.build(config.load(task["settings"], None), role="run-cycle") as built:
        built.worker.record_start("run-cycle", [task["cycle"]])
        if task.get("heartbeat"):
            built.heartbeat.start()
        report = built.runner.run(built.cycles([task["cycle"]])[0], "manual")
        return {"outcome": report.outcome, "error": report.error, "done": dict(report.counts)}


def fork(task: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Run a task in a process of its own; tell which, and how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        watch = Watch(task["strikes"])
        os.close(reading)
        try:
            ended = run(task, watch)
            os.write(
                writing,
                json.dumps(
                    ended | {"counts": watch.counts, "alone": [name for name in watch.alone if watch.alone[name]]}
                ).encode(),
            )
        finally:
            os._exit(0)
    tell({"pid": pid})
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    tell({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0} | json.loads(said or "{}"))


def main() -> None:
    """Answer task by task until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logs.configure("error", "json")
    for line in sys.stdin:
        fork(json.loads(line), lambda reported: print(json.dumps(reported), file=answers))


if __name__ == "__main__":
    main()
