"""Arrow connections: rows in bulk, read and written by a driver that would wait for the server for ever."""

from __future__ import annotations

import itertools
import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import make_conninfo

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.database.pool import Database

if TYPE_CHECKING:
    import pyarrow as pa

_SQL = queries.load("copying")
_BATCH_BYTES = {"adbc.postgresql.batch_size_hint_bytes": str(4 << 20)}
_LOOK_S = 0.5
_OPEN_FILES = Path("/proc/self/fd")
_TCP_TIMEOUT_MS = 10_000
_marks = itertools.cycle(range(_TCP_TIMEOUT_MS + 1, _TCP_TIMEOUT_MS + 5_000))


class Arrow:
    """A connection that reads and writes Arrow, in a transaction that ends with it."""

    def __init__(self, connection: Any, watchdog: _Watchdog) -> None:
        self._connection = connection
        self._watchdog = watchdog

    def execute(self, statement: str) -> None:
        """Run a statement that returns nothing."""
        with self._watchdog.waiting(), self._connection.cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def read(self, statement: str) -> Iterator[Iterator[pa.RecordBatch]]:
        """Read rows, batch by batch."""
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**_BATCH_BYTES)
            with self._watchdog.waiting():
                cursor.execute(statement)
            with cursor.fetch_record_batch() as batches:
                yield self._each(batches)

    def _each(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while True:
            with self._watchdog.waiting():
                try:
                    batch = batches.read_next_batch()
                except StopIteration:
                    return
            yield batch

    def ingest(self, schema: str, table: str, rows: pa.RecordBatchReader) -> None:
        """Write rows into a table; each batch that is taken shows that the server is there."""
        import pyarrow as pa  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands never copy

        def taken() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self._watchdog.heard()
                yield batch

        counted = pa.RecordBatchReader.from_batches(rows.schema, taken())
        with self._watchdog.waiting(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(table, counted, mode="append", db_schema_name=schema)

    def commit(self) -> None:
        """Commit the transaction."""
        with self._watchdog.waiting():
            self._connection.commit()


@contextmanager
def connect(database: Database) -> Iterator[Arrow]:
    """Open a connection by the direct DSN."""
    from adbc_driver_manager import AdbcConnection, dbapi  # noqa: PLC0415 only export and restore need it

    spare = _take_spare(database.direct_dsn)
    mark = spare.mark if spare else next(_marks)
    with _Watchdog(mark, database.long_answer_s) as watchdog:
        try:
            with watchdog.waiting():
                known: Any = spare or _ask_types(database.direct_dsn, mark)  # to the driver it is what it closes
                connection = dbapi.Connection(known, AdbcConnection(known.types))
                with connection.cursor() as cursor:
                    bounds = [str(database.lock_ms), str(database.long_statement_ms)]
                    cursor.execute(_SQL["bound_arrow"].decode(), bounds)
        except dbapi.Error as error:
            raise DatabaseUnavailableError(
                f"PostgreSQL did not answer ({normalise_error(error, 200)}).",
                hint="Check that it runs, and that DATABASE_DIRECT_URL names it.",
            ) from error
        try:
            yield Arrow(connection, watchdog)
        finally:
            connection.close()
    _spare.append(known)


@dataclass(frozen=True)
class _Known:
    """The types of a database, which the driver asks for in full; one connection at a time has its mark."""

    dsn: str
    mark: int
    types: Any

    def close(self) -> None:
        """Stay when a connection ends: the next one need not ask again."""


_spare: deque[_Known] = deque(maxlen=2)


def _take_spare(dsn: str) -> _Known | None:
    with suppress(IndexError):
        spare = _spare.pop()
        return spare if spare.dsn == dsn else None
    return None


def _ask_types(dsn: str, mark: int) -> _Known:
    import adbc_driver_postgresql  # noqa: PLC0415 only export and restore need it

    marked = make_conninfo(dsn, client_encoding="UTF8", tcp_user_timeout=mark)
    return _Known(dsn, mark, adbc_driver_postgresql.connect(marked))


class _Watchdog:
    """Cuts a connection whose server is silent for too long while somebody waits for it.

    The driver shows nobody its socket, so it is found by its TCP_USER_TIMEOUT, a number that no other connection of
    this process has. Where there is none, as on a Unix socket or outside Linux, nothing can be cut.
    """

    def __init__(self, mark: int, patience_s: float) -> None:
        self._mark = mark
        self._patience_s = patience_s
        self._guard = threading.Lock()
        self._since: float | None = None
        self._cut = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relevo-arrow-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def heard(self) -> None:
        """Note that the server gave a sign of life."""
        self._since = time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the server in the block; a connection that was cut meanwhile counts as a server that is gone."""
        self.heard()
        try:
            yield
        except Exception as error:
            if not self._cut:
                raise
            raise DatabaseUnavailableError(
                f"PostgreSQL did not answer for {self._patience_s:.0f} s.", hint="The next try opens a new connection."
            ) from error
        finally:
            with self._guard:
                self._since = None

    def _loop(self) -> None:
        while _OPEN_FILES.exists() and not self._done.wait(_LOOK_S):
            with self._guard:
                if self._since is not None and time.monotonic() - self._since > self._patience_s:
                    self._cut = True
                    _cut_marked(self._mark)


def _cut_marked(mark: int) -> None:
    """Shut down the socket that has this TCP_USER_TIMEOUT, so that whoever waits for it hears of its end."""
    for path in _OPEN_FILES.iterdir():
        number = int(path.name)
        with suppress(OSError):  # closed in the meantime, or no such socket
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as twin:
                if twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == mark:
                    twin.shutdown(socket.SHUT_RDWR)
