"""Connections that one test after the other uses: what a new backend reads and compiles is most of what a small test costs.

A worker in the test's own process closes its connections to the shared database at the end of the test. Those that are
idle then are made as new and handed out again, as another connection of another worker. All others are closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, Escaping, ExecStatus, PGconn, TransactionStatus

from relevo.database import pool

MOST = 12
SAME = ("host", "port", "dbname", "user", "password")
OURS = {
    "application_name",
    "client_encoding",
    "connect_timeout",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
}
"""What a worker says of each of its connections; one of which more is said is not kept."""
NAMED = """
select set_config('application_name', {}, false)
 where not exists (select from pg_db_role_setting s join pg_database d on d.datname = current_database() and s.setdatabase in (0, d.oid))
"""
"""Settings that were given to the database or a role hold for connections made after that, and as long as they last."""
AS_NEW = (
    *(b"close all", b"set session authorization default", b"reset all", b"deallocate all", b"unlisten *"),
    *(b"select pg_advisory_unlock_all()", b"discard temp", b"discard sequences"),
    *(b"set application_name = 'kept'", b"select pg_stat_force_next_flush()"),
)
"""What DISCARD ALL does, but for the plans of functions, which stay. The name is new, for a test may count connections by
their names. What a session counted is handed in, as at its end: another test may look at the statistics."""
_connect: Callable[..., pool.Connection] = pool.Connection.connect
_close = pool.Connection.close
_gone = PGconn.connect_start(b"host=127.0.0.1 port=9")
_gone.finish()
"""What a connection leads to after its backend was kept."""
_started: list[KeptConnections] = []


def end_kept() -> None:
    """End what is kept, for who wants to be alone in the database."""
    for kept in _started:
        kept.clear()


class KeptConnections:
    """The idle backends of one database."""

    def __init__(self, dsn: str) -> None:
        self._database = _database_of(conninfo_to_dict(dsn))
        self._guard = threading.Lock()
        self._kept: list[PGconn] = []
        self._ours: WeakSet[pool.Connection] = WeakSet()

    def start(self) -> None:
        """Keep what is closed from now on, and hand it out."""

        def close(connection: pool.Connection) -> None:
            self._closed(connection)

        _started.append(self)
        pool.Connection.connect = self._connected  # type: ignore[method-assign]
        pool.Connection.close = close  # type: ignore[method-assign]

    def stop(self) -> None:
        """Keep nothing any more."""
        _started.remove(self)
        pool.Connection.connect = _connect  # type: ignore[method-assign]
        pool.Connection.close = _close  # type: ignore[method-assign]
        self.clear()

    def clear(self) -> None:
        """End what is kept."""
        while pgconn := self._next():
            pgconn.finish()

    @property
    def pids(self) -> list[int]:
        """The backends that are kept."""
        with self._guard:
            return [pgconn.backend_pid for pgconn in self._kept]

    def _next(self) -> PGconn | None:
        with self._guard:
            return self._kept.pop() if self._kept else None

    def _connected(self, conninfo: str, *, autocommit: bool, prepare_threshold: int | None) -> pool.Connection:
        given = conninfo_to_dict(conninfo)
        is_ours = _database_of(given) == self._database and given.keys() <= {*SAME, *OURS}
        while is_ours and (pgconn := self._next()):
            if _named(pgconn, given):
                connection = pool.Connection(pgconn)
                connection.autocommit, connection.prepare_threshold = autocommit, prepare_threshold
                return self._noted(connection)
            pgconn.finish()
        made = _connect(conninfo, autocommit=autocommit, prepare_threshold=prepare_threshold)
        return self._noted(made) if is_ours and _named(made.pgconn, given) else made

    def _noted(self, connection: pool.Connection) -> pool.Connection:
        with self._guard:
            self._ours.add(connection)
        return connection

    def _closed(self, connection: pool.Connection) -> None:
        pgconn = connection.pgconn
        with self._guard:
            is_ours = connection in self._ours
            self._ours.discard(connection)
        is_idle = pgconn.status == ConnStatus.OK and pgconn.transaction_status == TransactionStatus.IDLE
        if is_ours and is_idle and all(_done(pgconn, statement) for statement in AS_NEW):
            with self._guard:
                if len(self._kept) < MOST:
                    connection.pgconn = _gone
                    self._kept.append(pgconn)
                    return
        _close(connection)


def _database_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(given.get(name)) for name in SAME)


def _named(pgconn: PGconn, given: Mapping[str, Any]) -> bool:
    """Give a backend its worker's name, unless there are settings that it may not know, or would keep."""
    name = Escaping(pgconn).escape_literal(str(given.get("application_name", "")).encode())
    return pgconn.exec_(NAMED.encode().replace(b"{}", name)).ntuples == 1


def _done(pgconn: PGconn, statement: bytes) -> bool:
    result = pgconn.exec_(statement)
    return result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
