"""Which errors of PostgreSQL mean that it does not answer, which pass by themselves, and which refuse a connection."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout

from relevo.core.errors import DatabaseRefusedError, DatabaseUnavailableError
from relevo.core.logs import normalise_error

# The server is gone, going, or no longer the primary.
_UNAVAILABLE = (
    DatabaseUnavailableError,
    PoolTimeout,
    PoolClosed,
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.ReadOnlySqlTransaction,
    pg.TooManyConnections,
    pg.IdleInTransactionSessionTimeout,
)
GONE = (PoolTimeout, pg.CannotConnectNow, pg.ReadOnlySqlTransaction, pg.TooManyConnections)
"""The server cannot be used for now; any other of these is the loss of one connection."""
BUSY = (pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected)
"""Somebody else is in the way, and trying again a little later is right: a lock, a timeout, a deadlock."""
_PASSING = ("40", "53", "57", "58")  # classes: rolled back, out of resources, stopped by somebody, the system around it


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the server did not answer, as opposed to refusing what was asked."""
    if isinstance(error, _UNAVAILABLE):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    # Class 08 is the connection itself: it is how PgBouncer says that the server behind it is gone.
    return error.sqlstate is None or error.sqlstate.startswith("08")


def is_passing(error: BaseException) -> bool:
    """Return whether an error passes by itself: the server is away, busy, or without room for a moment."""
    if is_unavailable(error) or isinstance(error, BUSY):
        return True
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "")[:2] in _PASSING


_REFUSALS = (
    (r"password authentication failed|no password supplied", "the password is wrong", "the password in DATABASE_URL"),
    (
        r'database "[^"]*" does not exist',
        "there is no such database",
        "the database's name in DATABASE_URL, or create it",
    ),
    (
        r'role "[^"]*" (does not exist|is not permitted to log in)|pg_hba\.conf|permission denied for database',
        "the role may not connect",
        "the user in DATABASE_URL, its CONNECT privilege, and pg_hba.conf",
    ),
)


def explain_unavailable(error: BaseException) -> DatabaseUnavailableError:
    """Distinguish an absent server from one that refuses us, and return which of three reasons it has."""
    reason = normalise_error(error, 200)
    for pattern, why, mend in _REFUSALS:
        if re.search(pattern, str(error)):
            said = f"PostgreSQL does not let us in: {why} ({reason})."
            return DatabaseRefusedError(said, hint=f"Check {mend}.")
    return DatabaseUnavailableError(
        f"PostgreSQL did not answer ({reason}).", hint="Check that it runs, and that DATABASE_URL names it."
    )
