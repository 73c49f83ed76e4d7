"""Settings that are wrong, or do not fit together: all are named at once, and no secret is repeated."""

from __future__ import annotations

import pytest

from relevo import config
from relevo.core.errors import ConfigError
from support.load_settings import complaint, load, row


class TestComplaints:
    """Wrong values are refused, all at once."""

    def test_one_wrong_number(self) -> None:
        """The complaint has the name, what would be right, and what was given."""
        text = complaint(OUTBOX_BATCH_SIZE="0")
        assert text.startswith("OUTBOX_BATCH_SIZE must be between 1 and 10000, got 0.")

    @pytest.mark.parametrize(
        ("name", "value", "right"),
        [
            ("OUTBOX_BATCH_SIZE", "many", "a whole number between 1 and 10000, got 'many'"),
            ("OUTBOX_BATCH_SIZE", "1.5", "a whole number between 1 and 10000, got '1.5'"),
            ("OUTBOX_BATCH_SIZE", "9" * 5000, "a whole number between 1 and 10000"),
            ("DATABASE_MAX_CONNECTIONS", "3", "between 4 and 100, got 3"),
            ("OUTBOX_WORKER_ENABLED", "maybe", "true or false, got 'maybe'"),
            ("LOG_LEVEL", "loud", "one of debug, info, warning, error, got 'loud'"),
            ("LOG_FORMAT", "xml", "one of console, json, got 'xml'"),
            ("CLEANUP_CRON", "daily", "a cron expression of five fields"),
            ("CLEANUP_CRON", "99 3 * * *", "a cron expression of five fields"),
            ("CLEANUP_CRON", "0 0 31 2 *", "a cron expression of five fields that some day meets"),
            ("WORKER_TIMEZONE", "Chile/Nowhere", "the name of a time zone such as America/Santiago"),
            ("WORKER_TIMEZONE", "America", "the name of a time zone"),
            ("WORKER_TIMEZONE", "../UTC", "the name of a time zone"),
            ("WORKER_ID", "two words", "1 to 100 characters out of"),
            ("WORKER_ID", "x" * 101, "1 to 100 characters out of"),
            ("WORKER_CYCLES", " , ", "names separated by commas"),
            ("WORKER_TICK_SHARD_COUNT", "0", "between 1 and 10000, got 0"),
            ("RELEVO_DATA_DIR", __file__, "a folder, not a file"),
            ("RELEVO_DATA_DIR", "x" * 5000, "a folder that can be reached"),
            ("RELEVO_DATA_DIR", "~nobody-of-that-name/x", "a folder that can be reached"),
            ("RELEVO_POSTGRES_BIN", "/no/such/folder", "a folder that exists, got '/no/such/folder'"),
            (
                "SOURCES",
                "folder,rss",
                "names out of chilecompra, chilecompra-web, ocds, folder, or none, got 'folder,rss'",
            ),
            ("SOURCES", "none,folder", "names out of chilecompra, chilecompra-web, ocds, folder, or none"),
            ("OCDS_URL", "example.org/x", "a web address such as https://example.org/path, got 'example.org/x'"),
            ("OCDS_URL", "https://example.org:port/", "a web address such as"),
            ("CHILECOMPRA_BASE_URL", "ftp://example.org", "a web address such as"),
            ("OCDS_NAMESPACE", "a b", "1 to 100 characters out of"),
            ("OCDS_FOLDER", "/no/such/folder", "a folder that exists"),
            ("INGEST_CATCHUP_DAYS", "0", "between 1 and 3650, got 0"),
            ("ARCHIVE_BUCKET", "a b", "the name of a bucket"),
            ("ARCHIVE_PREFIX", "/x", "names out of A-Z a-z 0-9 . _ = - with single slashes"),
            ("ARCHIVE_PREFIX", "../x/", "names out of A-Z a-z 0-9 . _ = - with single slashes"),
            ("ARCHIVE_PREFIX", "../../etc", "names below the bucket or folder, none of them . or .."),
            ("ARCHIVE_PREFIX", "a/./b", "names below the bucket or folder, none of them . or .."),
            ("ARCHIVE_ENDPOINT", "minio:9000", "a web address such as"),
            ("ARCHIVE_SSE", "rot13", "one of none, AES256, aws:kms, got 'rot13'"),
            ("ARCHIVE_FOLDER", __file__, "a folder, not a file"),
            ("DELIVERIES_RETENTION_DAYS", "0", "between 1 and 36500, got 0"),
        ],
    )
    def test_what_would_be_right(self, name: str, value: str, right: str) -> None:
        """Each kind of setting says what it wants, in a line short enough to read."""
        text = complaint(**{name: value})
        assert text.startswith(f"{name} must be {right}")
        assert len(text) < 400

    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql+psycopg://relay:hunter2@db/relevo",
            "postgresql://relay:hunter2@db:port:hunter2/relevo",
            "postgresql://relay:pass@hunter2@db/relevo",
            "postgresql://re@azure:hunter2@db/relevo",
            "host=db password=hunter2 hunter2",
            "postgresql://relay:hunter2\udcff@db/relevo",
            "postgresql://db/relevo?pass=hunter2",
        ],
    )
    def test_a_wrong_address_is_not_repeated(self, dsn: str) -> None:
        """The complaint about a database address shows a right one and nothing of the given one."""
        text = complaint(DATABASE_URL=dsn)
        assert "DATABASE_URL must be a PostgreSQL address such as postgresql://" in text
        assert "hunter2" not in text

    def test_the_cause_is_not_kept(self) -> None:
        """The error carries no chained exception that could show the values."""
        with pytest.raises(ConfigError) as caught:
            load(DATABASE_URL="nonsense hunter2")
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None

    def test_all_at_once(self) -> None:
        """Fields and relations are reported together in one error."""
        text = complaint(
            OUTBOX_BATCH_SIZE="0",
            LOG_LEVEL="loud",
            OUTBOX_RETRY_BASE_MS="9000",
            OUTBOX_RETRY_MAX_MS="8000",
            WORKER_TICK_SHARD_INDEX="3",
        )
        assert text.startswith("4 settings are wrong")
        for name in ("OUTBOX_BATCH_SIZE", "LOG_LEVEL", "OUTBOX_RETRY_BASE_MS", "WORKER_TICK_SHARD_COUNT"):
            assert f"\n- {name} must be " in text

    def test_no_complaints_that_follow_from_another(self) -> None:
        """A wrong lease is one complaint: what depends on it is not judged."""
        text = complaint(OUTBOX_LEASE_DURATION_MS="5", OUTBOX_LEASE_HEARTBEAT_MS="30000")
        assert text.startswith("OUTBOX_LEASE_DURATION_MS must be between 300 and 3600000, got 5.")
        assert "HEARTBEAT" not in text


LEASE = "OUTBOX_LEASE_DURATION_MS"


class TestRelations:
    """Settings that must fit together."""

    @pytest.mark.parametrize(
        ("name", "given", "most", "right"),
        [
            ("OUTBOX_LEASE_HEARTBEAT_MS", {LEASE: "3000"}, 999, "less than a third of"),
            ("DATABASE_STATEMENT_TIMEOUT_MS", {LEASE: "3000"}, 999, "less than a third of"),
            ("DATABASE_LOCK_TIMEOUT_MS", {LEASE: "3000"}, 999, "less than a third of"),
            ("DATABASE_IDLE_TRANSACTION_TIMEOUT_MS", {LEASE: "3000"}, 999, "less than a third of"),
            ("PUSH_REQUEST_TIMEOUT_MS", {LEASE: "3000"}, 1499, "less than half of"),
            ("WORKER_SHUTDOWN_TIMEOUT_MS", {LEASE: "3000"}, 3000, "at most"),
            ("REAPER_INTERVAL_MS", {LEASE: "3000"}, 2999, "less than"),
            ("OUTBOX_RETRY_BASE_MS", {"OUTBOX_RETRY_MAX_MS": "70"}, 70, "at most"),
            ("WORKER_IDLE_BACKOFF_MIN_MS", {"WORKER_IDLE_BACKOFF_MAX_MS": "70"}, 70, "at most"),
            ("WORKER_TICK_RUNNER_MAX_MS", {"WORKER_TICK_OVERALL_MAX_MS": "70"}, 70, "at most"),
        ],
    )
    def test_the_exact_border(self, name: str, given: dict[str, str], most: int, right: str) -> None:
        """The largest fitting value is accepted; one more is refused with the other's name and value."""
        [(other, ceiling)] = given.items()
        assert getattr(load(**given, **{name: str(most)}), name.lower()) == most
        text = complaint(**given, **{name: str(most + 1)})
        assert text.startswith(f"{name} must be {right} {other} ({ceiling}), got {most + 1}.")

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"WORKER_TICK_SHARD_COUNT": "4"}, "WORKER_TICK_SHARD_INDEX must be set along with"),
            ({"WORKER_TICK_SHARD_INDEX": "0"}, "WORKER_TICK_SHARD_COUNT must be set along with"),
            (
                {"WORKER_TICK_SHARD_INDEX": "4", "WORKER_TICK_SHARD_COUNT": "4"},
                "WORKER_TICK_SHARD_INDEX must be less than WORKER_TICK_SHARD_COUNT (4), got 4",
            ),
            (
                {"DATABASE_DIRECT_URL": "postgresql://h/d"},
                "DATABASE_URL must be set along with DATABASE_DIRECT_URL",
            ),
            ({"SOURCES": "chilecompra"}, "CHILECOMPRA_TICKET must be set along with chilecompra in SOURCES"),
            (
                {"SOURCES": "chilecompra-web"},
                "CHILECOMPRA_WEB_ENABLED must be true along with chilecompra-web in SOURCES",
            ),
            (
                {"SOURCES": "folder", "CHILECOMPRA_WEB_ENABLED": "true"},
                "SOURCES must name chilecompra-web along with CHILECOMPRA_WEB_ENABLED (true)",
            ),
            ({"SOURCES": "ocds"}, "OCDS_URL or OCDS_FOLDER must be set along with ocds in SOURCES"),
            ({"OCDS_URL": "https://h/d", "OCDS_FOLDER": "/"}, "OCDS_URL must not be set along with OCDS_FOLDER"),
        ],
    )
    def test_what_belongs_together(self, given: dict[str, str], wanted: str) -> None:
        """A shard needs index and count, the index below the count; a direct address needs the main one."""
        assert complaint(**given).startswith(wanted)

    @pytest.mark.parametrize(
        ("name", "low"),
        [
            ("OUTBOX_LEASE_DURATION_MS", 300),
            ("OUTBOX_RETRY_MAX_MS", 1),
            ("WORKER_IDLE_BACKOFF_MAX_MS", 1),
            ("WORKER_TICK_OVERALL_MAX_MS", 1),
        ],
    )
    def test_lowering_one_lowers_the_defaults_below_it(self, name: str, low: int) -> None:
        """Who lowers only the ceiling gets defaults that fit, within their own bounds, marked as derived."""
        settings = load(**{name: str(low)})
        followers = [each for each in config.describe(settings) if each.source == "derived"]
        assert followers
        reported = {each.name: each.value for each in followers}
        origins = dict.fromkeys([name.lower(), *map(str.lower, reported)], "environment")
        assert vars(load(**{name: str(low)}, **reported)) == {**vars(settings), "origins": origins}

    def test_raising_the_lease_keeps_the_defaults(self) -> None:
        """A longer lease does not stretch timeouts that were right before."""
        settings = load(OUTBOX_LEASE_DURATION_MS="600000")
        assert settings.outbox_lease_heartbeat_ms == 15_000
        assert row(settings, "OUTBOX_LEASE_HEARTBEAT_MS").source == "default"

    def test_the_direct_address_defaults_to_the_main_one(self) -> None:
        """Without a pooler one address is enough."""
        assert load(DATABASE_URL="postgresql://h/d").database_direct_url == "postgresql://h/d"
