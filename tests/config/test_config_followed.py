"""Knobs of the systems Relevo follows: adopted, or refused with a reason."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from relevo import config
from relevo.cli import running
from relevo.core.errors import UsageError
from relevo.core.model import Shard
from relevo.database import pool
from support.load_settings import load

# Knobs of the systems Relevo follows, with their defaults (None: unset or not told).
FOLLOWED: dict[str, object] = {
    "WORKER_TICK_RUNNERS": ("outbox", "invoiceReminders", "classesBilling"),
    "WORKER_TICK_OVERALL_MAX_MS": 480_000,
    "WORKER_TICK_RUNNER_MAX_MS": 60_000,
    "WORKER_TICK_RUNNER_MAX_ITEMS": 200,
    "WORKER_TICK_SHARD_INDEX": None,
    "WORKER_TICK_SHARD_COUNT": None,
    "WORKER_BUSY_LOOP_DELAY_MS": 250,
    "WORKER_IDLE_BACKOFF_MIN_MS": 1_000,
    "WORKER_IDLE_BACKOFF_MAX_MS": 30_000,
    "WORKER_IDLE_BACKOFF_JITTER_MS": 500,
    "WORKER_TICK_LOOP_ERROR_BACKOFF_MS": 30_000,
    "WORKER_TICK_LOOP_MAX_JITTER_MS": 2_000,
    "WORKER_SHUTDOWN_TIMEOUT_MS": 30_000,
    "OUTBOX_BATCH_SIZE": 50,
    "OUTBOX_CONCURRENCY": 10,
    "OUTBOX_LEASE_DURATION_MS": 60_000,
    "OUTBOX_LEASE_HEARTBEAT_MS": 15_000,
    "OUTBOX_MAX_ATTEMPTS": 3,
    "OUTBOX_RETRY_BASE_MS": 5_000,
    "OUTBOX_RETRY_MAX_MS": 120_000,
    "OUTBOX_RETRY_JITTER_MS": 500,
    "OUTBOX_WORKER_ENABLED": False,
    "CLEANUP_CRON": "17 3 * * *",
    "ARCHIVE_EXPORT_CRON": "47 3 * * *",
    "ARCHIVE_BUCKET": None,
    "ARCHIVE_REGION": None,
    "ARCHIVE_ENDPOINT": None,
    "PDF_RENDER_CONCURRENCY": 2,
    "WORKER_API_BASE_URL": None,
    "WORKER_API_SERVICE_TOKEN": None,
    "OUTBOX_WORKER_POLL_MS": None,
    "OUTBOX_WORKER_BATCH_SIZE": None,
    "OUTBOX_WORKER_MAX_ATTEMPTS": None,
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": None,
    "OUTBOX_WORKER_RETRY_BASE_MS": None,
    "OUTBOX_WORKER_RETRY_MAX_MS": None,
    "workerId": None,
    "pollIntervalMs": 60_000,
    "nextJobDelayMs": 0,
    "leaseMs": 60_000,
    "renewIntervalMs": 30_000,
    "initialDelayMs": 10_000,
    "maxDelayMs": 300_000,
    "multiplier": 2.0,
    "worker:scheduler:invoiceReminders": None,
    "worker:scheduler:classesBilling": None,
}


# Knobs of the systems Relevo follows that it does not have, and why.
_ONE_NAME = "one knob has one name here: {}"


NOT_ADOPTED: dict[str, str] = {
    "PDF_RENDER_CONCURRENCY": "Relevo renders no PDF",
    "WORKER_API_BASE_URL": "cycles meet in table state; none calls an HTTP service of its own",
    "WORKER_API_SERVICE_TOKEN": "cycles meet in table state; none calls an HTTP service of its own",
    "OUTBOX_WORKER_POLL_MS": _ONE_NAME.format("WORKER_IDLE_BACKOFF_MIN_MS to WORKER_IDLE_BACKOFF_MAX_MS"),
    "OUTBOX_WORKER_BATCH_SIZE": _ONE_NAME.format("OUTBOX_BATCH_SIZE"),
    "OUTBOX_WORKER_MAX_ATTEMPTS": _ONE_NAME.format("OUTBOX_MAX_ATTEMPTS"),
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": _ONE_NAME.format("OUTBOX_LEASE_DURATION_MS"),
    "OUTBOX_WORKER_RETRY_BASE_MS": _ONE_NAME.format("OUTBOX_RETRY_BASE_MS"),
    "OUTBOX_WORKER_RETRY_MAX_MS": _ONE_NAME.format("OUTBOX_RETRY_MAX_MS"),
    "workerId": _ONE_NAME.format("WORKER_ID"),
    "pollIntervalMs": _ONE_NAME.format("WORKER_IDLE_BACKOFF_MAX_MS"),
    "nextJobDelayMs": _ONE_NAME.format("WORKER_BUSY_LOOP_DELAY_MS"),
    "leaseMs": _ONE_NAME.format("OUTBOX_LEASE_DURATION_MS"),
    "renewIntervalMs": _ONE_NAME.format("OUTBOX_LEASE_HEARTBEAT_MS"),
    "initialDelayMs": _ONE_NAME.format("OUTBOX_RETRY_BASE_MS"),
    "maxDelayMs": _ONE_NAME.format("OUTBOX_RETRY_MAX_MS"),
    "multiplier": "waits between attempts always double",
    "worker:scheduler:invoiceReminders": "fleet-wide cycles hold a lease row, not an advisory lock",
    "worker:scheduler:classesBilling": "fleet-wide cycles hold a lease row, not an advisory lock",
}


# Adopted knobs whose default is another one here, and why.
DIFFERS: dict[str, str] = {
    "OUTBOX_WORKER_ENABLED": "on, not off: one command must be enough to see the relay run",
    "OUTBOX_BATCH_SIZE": "1000, not 50: pushes leave in requests of 100, so a claim feeds several",
    "OUTBOX_CONCURRENCY": "6, not 10: it is what Expo bears, and 10 is accepted and means 6",
    "OUTBOX_MAX_ATTEMPTS": "9, not 3: a push service's outage may last hours",
    "OUTBOX_RETRY_BASE_MS": "60000, not 5000: waits of 1, 2, 4 … minutes spare a push service in trouble",
    "OUTBOX_RETRY_MAX_MS": "3600000, not 120000: waits grow to an hour",
    "WORKER_TICK_RUNNERS": "Relevo's own cycles",
    "WORKER_TICK_RUNNER_MAX_ITEMS": "100000, not 200: an item is one push, not one document",
}


class TestFollowedKnobs:
    """Knobs of the systems Relevo follows."""

    def test_each_is_a_setting_or_refused_with_a_reason(self) -> None:
        """No knob is forgotten, and none is both."""
        ours = {each.name for each in config.describe(load())}
        assert {name for name in FOLLOWED if name not in ours} == set(NOT_ADOPTED)
        assert all(NOT_ADOPTED.values())

    def test_other_defaults_are_explained(self) -> None:
        """A setting keeps the known default, or DIFFERS says why not."""
        settings = load()
        adopted = {name: each for name, each in FOLLOWED.items() if name not in NOT_ADOPTED}
        other = {name for name, default in adopted.items() if getattr(settings, name.lower()) != default}
        assert other == set(DIFFERS)

    def test_reasons_name_settings_that_exist(self) -> None:
        """What a reason advises to use instead is a setting."""
        ours = {each.name for each in config.describe(load())}
        words = " ".join(NOT_ADOPTED.values()).split()
        assert {word for word in words if "_" in word} <= ours


def test_what_a_dsn_says_of_its_connections_stays() -> None:
    """Limits that a DSN names are its own; those that it does not name are ours."""
    settings = config.load({"DATABASE_CONNECT_TIMEOUT_MS": "9500"}, None)
    dsn = "host=db application_name=mine keepalives_idle=60 connect_timeout=3"
    said = conninfo_to_dict(pool._conninfo(dsn, settings, "relevo"))
    assert [said[name] for name in ("host", "application_name", "keepalives_idle", "connect_timeout")] == [
        "db",
        "mine",
        "60",
        "3",
    ]
    assert (said["keepalives_count"], said["tcp_user_timeout"], said["client_encoding"]) == ("3", "10000", "UTF8")
    usual = conninfo_to_dict(pool._conninfo("postgresql://db/x", settings, "r" * 70))
    assert (usual["application_name"], usual["connect_timeout"], usual["keepalives_idle"]) == ("r" * 60, "9", "5")


@pytest.mark.parametrize(
    ("index", "count", "expected"),
    [
        (None, None, Shard(1, 3)),
        (0, 2, Shard(0, 2)),
        (1, 2, Shard(1, 2)),
        (2, 2, None),
        (3, 2, None),
        (0, None, None),
        (None, 2, None),
    ],
)
def test_a_shard_is_below_its_count(index: int | None, count: int | None, expected: Shard | None) -> None:
    """What a tick is given goes before the settings, both numbers together; an index is one of 0 to count - 1."""
    settings = config.load({"WORKER_TICK_SHARD_INDEX": "1", "WORKER_TICK_SHARD_COUNT": "3"}, None)
    if expected is None:
        with pytest.raises(UsageError, match="below its count"):
            running._shard(settings, index, count)
    else:
        assert running._shard(settings, index, count) == expected
