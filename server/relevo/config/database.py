"""The database: where it is, how many connections, and how long anything may take."""

from __future__ import annotations

from typing import Annotated

from relevo.config.kinds import Address
from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Derived, Theme, between, everyday, expert, of_lease, tuning


class Database(Theme):
    """The database."""

    database_url: Address | None = everyday(
        "The PostgreSQL to use, maybe through PgBouncer in transaction mode; without it one is embedded."
    )
    database_direct_url: Address | None = everyday(
        "The same database without a pooler in between, for LISTEN and migrations.",
        Derived(lambda data: data["database_url"], "same as DATABASE_URL"),
    )
    database_read_url: Address | None = tuning(
        "A replica of the same database, from which lists, histories and reports are read; without it, and while it is "
        "gone or too far behind, the primary."
    )
    database_max_connections: Annotated[int, between(4, 100)] = everyday(
        "Connections one replica may open in all: one listens, one extends leases, the rest are a pool.", 8
    )
    database_read_max_lag_ms: Annotated[int, between(100, HOUR)] = expert(
        "How far behind DATABASE_READ_URL may be before the primary is read instead, in milliseconds.", 15 * SECOND
    )
    database_connect_timeout_ms: Annotated[int, between(10, 5 * MINUTE)] = expert(
        "How long opening a connection may take, in milliseconds.", 5 * SECOND
    )
    database_statement_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "How long one statement may run, in milliseconds.", of_lease(15 * SECOND, 4)
    )
    database_lock_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "How long one statement may wait for a lock, in milliseconds.", of_lease(5 * SECOND, 4)
    )
    database_idle_transaction_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "How long a transaction may sit idle before PostgreSQL ends it, in milliseconds.", of_lease(10 * SECOND, 4)
    )
    database_answer_margin_ms: Annotated[int, between(100, HOUR)] = expert(
        "How long after DATABASE_STATEMENT_TIMEOUT_MS an answer may still be missing before the connection is dropped, "
        "in milliseconds.",
        5 * SECOND,
    )
    database_long_statement_timeout_ms: Annotated[int, between(SECOND, DAY)] = expert(
        "How long one migration, or one statement of an export or a restore, may run, in milliseconds.", 30 * MINUTE
    )
