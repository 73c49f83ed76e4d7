"""The database: where it is, how many connections, and how long anything may take."""

from __future__ import annotations

from typing import Annotated

from relevo.config.kinds import Address
from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Derived, Theme, between, everyday, expert, of_lease, tuning


class Database(Theme):
    """The database."""

    database_url: Address | None = everyday(
        "PostgreSQL's address, directly or through PgBouncer in transaction mode. Without it Relevo embeds a "
        "PostgreSQL."
    )
    database_direct_url: Address | None = everyday(
        "The same database's address without a pooler, for LISTEN and migrations.",
        Derived(lambda data: data["database_url"], "same as DATABASE_URL"),
    )
    database_read_url: Address | None = tuning(
        "The address of a replica of the same database, for lists, histories and reports. While it is unset, "
        "unreachable or too far behind, Relevo reads the primary."
    )
    database_max_connections: Annotated[int, between(4, 100)] = everyday(
        "Connections that one replica may open: one listens, one extends leases, the others are a pool.", 8
    )
    database_read_max_lag_ms: Annotated[int, between(100, HOUR)] = expert(
        "How far behind the replica of DATABASE_READ_URL may be before Relevo reads the primary instead.",
        15 * SECOND,
    )
    database_connect_timeout_ms: Annotated[int, between(10, 5 * MINUTE)] = expert(
        "The longest opening of a connection.", 5 * SECOND
    )
    database_statement_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "The longest statement.", of_lease(15 * SECOND, 4)
    )
    database_lock_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "The longest wait of a statement for a lock.", of_lease(5 * SECOND, 4)
    )
    database_idle_transaction_timeout_ms: Annotated[int, between(10, HOUR)] = expert(
        "How long a transaction may be idle before PostgreSQL ends it.", of_lease(10 * SECOND, 4)
    )
    database_answer_margin_ms: Annotated[int, between(100, HOUR)] = expert(
        "How long after DATABASE_STATEMENT_TIMEOUT_MS Relevo waits for an answer before it drops the connection.",
        5 * SECOND,
    )
    database_long_statement_timeout_ms: Annotated[int, between(SECOND, DAY)] = expert(
        "The longest migration, or statement of an export or a restore.", 30 * MINUTE
    )
