"""Settings: read once, frozen, complaining by name, silent about secrets."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import rich
from pydantic import ValidationError

from relevo import config
from relevo.config import loading
from relevo.config.settings import fields_of
from relevo.core.errors import ConfigError

ROOT = Path(__file__).parents[2]

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


def load(**environ: str) -> config.Settings:
    """Load from these variables alone."""
    return config.load(environ, env_file=None)


def complaint(**environ: str) -> str:
    """Return the complaint these variables cause."""
    with pytest.raises(ConfigError) as caught:
        load(**environ)
    return str(caught.value)


def row(settings: config.Settings, name: str) -> config.SettingRow:
    """Return the described setting of that name."""
    return next(each for each in config.describe(settings) if each.name == name)


def test_nothing_set_gives_the_defaults() -> None:
    """Without any variable every setting has its documented default, and they fit together."""
    settings = load()
    assert settings.database_url is None
    assert settings.outbox_batch_size == 1_000
    assert settings.outbox_lease_duration_ms == 60_000
    assert settings.outbox_lease_heartbeat_ms == 15_000
    assert settings.database_statement_timeout_ms == 15_000
    assert settings.database_lock_timeout_ms == 5_000
    assert settings.database_idle_transaction_timeout_ms == 10_000
    assert settings.push_request_timeout_ms == 10_000
    assert settings.worker_shutdown_timeout_ms == 30_000
    assert settings.reaper_interval_ms == 10_000
    assert settings.worker_tick_runners == (
        "reaper",
        "ingest",
        "fanout",
        "digest",
        "dispatch",
        "receipt",
        "cleanup",
        "archive-export",
    )
    assert settings.outbox_worker_enabled is True
    assert settings.worker_cycles is None
    assert settings.warnings == ()


def test_values_are_read_and_typed() -> None:
    """Text from the environment becomes numbers, truth values, lists, paths and choices."""
    settings = load(
        OUTBOX_BATCH_SIZE=" 50 ",
        OUTBOX_WORKER_ENABLED="off",
        WORKER_CYCLES="dispatch, receipt,",
        RELEVO_DATA_DIR="~/relay",
        LOG_LEVEL="DEBUG",
        WORKER_ID="eu-1.a:b_c",
    )
    assert settings.outbox_batch_size == 50
    assert settings.outbox_worker_enabled is False
    assert settings.worker_cycles == ("dispatch", "receipt")
    assert settings.relevo_data_dir == Path.home() / "relay"
    assert settings.log_level == "debug"
    assert settings.worker_id == "eu-1.a:b_c"


def test_where_months_are_archived_follows_from_what_is_set() -> None:
    """Alone the demo has a folder beside its data; with a database it takes a bucket or a folder, never both."""
    assert load(RELEVO_DATA_DIR="/data").archive_folder == Path("/data/archive")
    assert load(DATABASE_URL="postgresql://db/x").archive_folder is None
    bucket = load(ARCHIVE_BUCKET="cold", ARCHIVE_ENDPOINT="https://s3.example.org")
    assert (bucket.archive_folder, bucket.archive_path_style) == (None, True)
    assert load(ARCHIVE_BUCKET="cold").archive_path_style is False
    said = complaint(ARCHIVE_BUCKET="cold", ARCHIVE_FOLDER="/cold")
    assert said.startswith("ARCHIVE_FOLDER must not be set along with ARCHIVE_BUCKET")
    assert "ARCHIVE_BUCKET must be set along with ARCHIVE_ENDPOINT" in complaint(
        ARCHIVE_ENDPOINT="https://s3.example.org"
    )
    said = complaint(ARCHIVE_BUCKET="cold", ARCHIVE_SSE_KMS_KEY_ID="key")
    assert said.startswith("ARCHIVE_SSE must be aws:kms along with ARCHIVE_SSE_KMS_KEY_ID")


def test_settings_are_frozen() -> None:
    """Nothing can change a setting after the start."""
    with pytest.raises(ValidationError, match="frozen"):
        load().outbox_batch_size = 5


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Called without arguments, load reads the process's environment and .env of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_BATCH_SIZE", "7")
    (tmp_path / ".env").write_text("OUTBOX_BATCH_SIZE=8\nOUTBOX_MAX_ATTEMPTS=4\n")
    settings = config.load()
    assert (settings.outbox_batch_size, settings.outbox_max_attempts) == (7, 4)


def test_values_of_code_are_checked_as_well() -> None:
    """Settings made in a program refuse an unknown name and an unfit value, by name and without the value."""
    with pytest.raises(ValidationError) as refused:
        config.Settings(outbox_batch_size="hunter2", relevo_demo=2, no_such=1)
    wrong = [each["loc"][0] for each in refused.value.errors() if each["type"] != "default_factory_not_called"]
    assert wrong == ["outbox_batch_size", "relevo_demo", "no_such"]
    assert "hunter2" not in str(refused.value)
    assert config.Settings(outbox_batch_size="1_000", relevo_demo=1).relevo_demo is True


def test_settings_alone_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only load looks at the environment; making a Settings object does not."""
    monkeypatch.setenv("OUTBOX_BATCH_SIZE", "7")
    assert config.Settings().outbox_batch_size == 1_000


class TestEnvFile:
    """The optional .env."""

    def test_environment_wins_and_sources_are_told(self, tmp_path: Path) -> None:
        """Each row says whether its value came from the environment, .env or the default; a file of Notepad is read, too."""
        file = tmp_path / ".env"
        first = "\ufeffOUTBOX_POISON_LAPSES=7\n"  # with a byte order mark, as Windows writes it
        file.write_text(first + "export OUTBOX_BATCH_SIZE='8' # small\nOUTBOX_MAX_ATTEMPTS=4\nOTHER=1\n")
        settings = config.load({"OUTBOX_BATCH_SIZE": "7"}, env_file=file)
        assert row(settings, "OUTBOX_BATCH_SIZE")[1:5:3] == ("7", "environment")
        assert row(settings, "OUTBOX_MAX_ATTEMPTS")[1:5:3] == ("4", ".env")
        assert row(settings, "OUTBOX_POISON_LAPSES")[1:5:3] == ("7", ".env")
        assert row(settings, "RUNS_RETENTION_DAYS")[1:5:3] == ("90", "default")

    def test_an_empty_value_counts_as_unset(self, tmp_path: Path) -> None:
        """An empty variable neither fails nor hides what .env says."""
        file = tmp_path / ".env"
        file.write_text("OUTBOX_BATCH_SIZE=8\nWORKER_ID=\n")
        settings = config.load({"OUTBOX_BATCH_SIZE": "", "CLEANUP_CRON": " "}, env_file=file)
        assert (settings.outbox_batch_size, settings.worker_id) == (8, None)
        assert settings.cleanup_cron == "17 3 * * *"

    def test_a_missing_file_is_fine(self, tmp_path: Path) -> None:
        """Nobody needs a .env."""
        assert config.load({}, env_file=tmp_path / ".env") == load()

    def test_dollars_in_values_are_kept(self, tmp_path: Path) -> None:
        """A password may contain ${…}; nothing is filled in."""
        file = tmp_path / ".env"
        file.write_text("DATABASE_URL=postgresql://u:a${HOME}b@h/d\n")
        assert config.load({}, env_file=file).database_url == "postgresql://u:a${HOME}b@h/d"

    def test_unreadable_lines_are_named_along_with_wrong_values(self, tmp_path: Path) -> None:
        """A broken line is refused by number, not skipped, and other faults are told with it."""
        file = tmp_path / ".env"
        file.write_text("# ours\nOUTBOX_BATCH_SIZE 8\nRUNS_RETENTION_DAYS\nOUTBOX_MAX_ATTEMPTS=0\n")
        with pytest.raises(ConfigError) as caught:
            config.load({}, env_file=file)
        assert "line 2 must be NAME=value" in str(caught.value)
        assert "line 3 must be NAME=value" in str(caught.value)
        assert "OUTBOX_MAX_ATTEMPTS must be between 1 and 100, got 0 (in .env)" in str(caught.value)

    @pytest.mark.parametrize("content", [None, b"WORKER_ID=\xff\xfe"], ids=["folder", "not text"])
    def test_an_unreadable_file_is_refused(self, tmp_path: Path, content: bytes | None) -> None:
        """A .env that cannot be read is an error with the file's name, not a traceback."""
        file = tmp_path / ".env"
        file.write_bytes(content) if content else file.mkdir()
        with pytest.raises(ConfigError, match="must be a readable text file"):
            config.load({}, env_file=file)

    def test_the_example_is_generated(self) -> None:
        """`.env.example` has the everyday settings as the code has them, and the names of all others."""
        make = "python -c 'from relevo import config; print(config.example(), end=\"\")' > .env.example"
        assert (ROOT / ".env.example").read_text(encoding="utf-8") == config.example(), f"run: {make}"

    def test_the_example_uncommented_is_the_default(self, tmp_path: Path) -> None:
        """Uncommenting every line of the example changes nothing."""
        rows = config.describe(load())
        names = {each.name for each in rows if each.tier == "everyday"}
        lines = [line.removeprefix("# ") for line in config.example().splitlines()]
        chosen = [line for line in lines if line.partition("=")[0] in names]
        file = tmp_path / ".env"
        file.write_text("\n".join(chosen))
        assert len(chosen) == len(names)
        assert [each[:2] for each in config.describe(config.load({}, env_file=file))] == [each[:2] for each in rows]

    def test_the_example_names_every_setting(self) -> None:
        """The everyday ones are few; every other one is named in the example, too."""
        rows = config.describe(load())
        assert sum(each.tier == "everyday" for each in rows) <= 30
        assert {each.name for each in rows} <= set(re.findall(r"[A-Z_]+", config.example()))


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


class TestSources:
    """Which sources are read."""

    @pytest.mark.parametrize(
        ("given", "sources"),
        [
            ({}, ("folder",)),
            ({"CHILECOMPRA_TICKET": "t"}, ("chilecompra",)),
            ({"CHILECOMPRA_TICKET": "t", "CHILECOMPRA_WEB_ENABLED": "true"}, ("chilecompra", "chilecompra-web")),
            ({"OCDS_URL": "https://h/d"}, ("ocds",)),
            ({"OCDS_FOLDER": "/", "FOLDER_SOURCE_DIR": "/"}, ("ocds", "folder")),
            ({"CHILECOMPRA_TICKET": "t", "SOURCES": "folder , folder"}, ("folder",)),
            ({"SOURCES": "none"}, ()),
        ],
    )
    def test_those_that_are_spoken_of(self, given: dict[str, str], sources: tuple[str, ...]) -> None:
        """SOURCES decides; without it those whose ticket, address or folder is set, and else the bundled sample."""
        assert load(**given).sources == sources

    def test_the_ticket_does_not_show(self) -> None:
        """The ticket is a secret."""
        settings = load(CHILECOMPRA_TICKET="hunter2")
        assert "hunter2" not in f"{settings!r} {config.describe(settings)}"
        assert row(settings, "CHILECOMPRA_TICKET").value == "set"


class TestProxies:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as every program reads them."""

    def test_they_are_read_in_capitals_and_in_small_letters(self) -> None:
        """As every setting; capitals win, and neither causes a warning."""
        settings = load(HTTPS_PROXY="http://secure:3128/", http_proxy="plain:3128", no_proxy="a.example, 10.0.0.0/8")
        assert settings.proxies.https == "http://secure:3128"
        assert settings.proxies.http == "http://plain:3128"
        assert settings.proxies.direct == ("a.example", "10.0.0.0/8")
        assert settings.warnings == ()
        assert row(settings, "HTTP_PROXY").source == "environment"
        assert load(HTTPS_PROXY="a:1", https_proxy="b:1").https_proxy == "http://a:1"

    def test_a_password_does_not_show(self) -> None:
        """Neither in `relevo config` nor in repr."""
        settings = load(HTTPS_PROXY="http://relay:hunter2@proxy:3128", HTTP_PROXY="relay:hunter2@proxy:3128")
        assert row(settings, "HTTPS_PROXY").value == row(settings, "HTTP_PROXY").value == "http://***@proxy:3128"
        assert "hunter2" not in f"{settings!r} {config.describe(settings)}"

    @pytest.mark.parametrize(
        "address",
        ["socks5://relay:hunter2@proxy:1080", "https://hunter2@proxy", "http://proxy/hunter2", "http://", "a b"],
    )
    def test_another_kind_of_proxy_is_refused(self, address: str) -> None:
        """Only HTTP proxies are spoken to; the complaint shows one and does not repeat what was given."""
        text = complaint(HTTPS_PROXY=address)
        assert text.startswith("HTTPS_PROXY must be the address of an HTTP proxy such as http://proxy.example:3128")
        assert "hunter2" not in text


class TestWarnings:
    """Variables without effect are pointed out, not refused."""

    @pytest.mark.parametrize("name", ["OUTBOX_BATCHSIZE", "outbox_batchsize", "OUTBOX_BATCH_SIZES"])
    def test_a_near_miss(self, name: str) -> None:
        """A typo of ours names what was probably meant."""
        assert load(**{name: "5"}).warnings == (f"{name} has no effect; did you mean OUTBOX_BATCH_SIZE?",)

    @pytest.mark.parametrize(
        ("name", "ours"),
        [
            ("OUTBOX_WORKER_POLL_MS", "DISPATCH_INTERVAL_MINUTES"),
            ("OUTBOX_WORKER_BATCH_SIZE", "OUTBOX_BATCH_SIZE"),
            ("OUTBOX_WORKER_MAX_ATTEMPTS", "OUTBOX_MAX_ATTEMPTS"),
            ("OUTBOX_WORKER_PROCESSING_TIMEOUT_MS", "OUTBOX_LEASE_DURATION_MS"),
            ("OUTBOX_WORKER_RETRY_BASE_MS", "OUTBOX_RETRY_BASE_MS"),
            ("OUTBOX_WORKER_RETRY_MAX_MS", "OUTBOX_RETRY_MAX_MS"),
        ],
    )
    def test_names_of_other_outbox_workers(self, name: str, ours: str) -> None:
        """Whoever comes from one is told what each of its settings is called here."""
        assert load(**{name: "5"}).warnings == (f"{name} has no effect; here it is {ours}.",)
        assert ours in {row.name for row in config.describe(load())}

    @pytest.mark.parametrize(("asked", "used"), [("10", 6), ("7", 6), ("1000", 6), ("6", 6), ("1", 1)])
    def test_more_requests_at_once_than_a_push_service_bears(self, asked: str, used: int) -> None:
        """OUTBOX_CONCURRENCY above six is accepted, means six, and says so once; in `relevo config`, too."""
        settings = load(OUTBOX_CONCURRENCY=asked)
        assert settings.outbox_concurrency == used
        assert row(settings, "OUTBOX_CONCURRENCY").value == str(used)
        assert "more than 6, which is what Expo bears, means 6" in row(settings, "OUTBOX_CONCURRENCY").meaning
        reported = f"OUTBOX_CONCURRENCY is {asked} and means 6: a push service bears no more for one project."
        assert settings.warnings == ((reported,) if int(asked) > 6 else ())

    @pytest.mark.parametrize("name", ["PUSH_BRAKE_PERCENT", "push_brake_percent"])
    def test_what_was_a_setting(self, name: str) -> None:
        """A variable that was a setting is named, with what it is now, and ignored whatever it says."""
        reported = f"{name} is no setting any more and is ignored; it is always 20."
        assert load(**{name: "nonsense"}).warnings == (reported,)
        assert not {each.name for each in config.describe(load())} & set(loading._FIXED)

    def test_strangers_are_left_alone(self) -> None:
        """Other programs' variables, also of our families, cause nothing."""
        assert load(PATH="/bin", DATABASE_POOL="5", WORKER_THREADS="2", RELEVO_TESTS="1", LOG_DIR="x").warnings == ()


class TestDescribe:
    """What `relevo config` prints."""

    def test_every_setting_once_with_its_meaning(self) -> None:
        """All settings are listed, each with one sentence."""
        rows = config.describe(load())
        assert sorted(each.name.lower() for each in rows) == sorted(fields_of(config.Settings))
        assert all(each.meaning[0].isupper() and each.meaning.endswith(".") for each in rows)

    def test_values_read_like_the_environment(self) -> None:
        """Lists, truth values and unset ones are shown as one would write them."""
        settings = load(WORKER_CYCLES="a,b", OUTBOX_WORKER_ENABLED="0")
        assert row(settings, "WORKER_CYCLES").value == "a,b"
        assert row(settings, "OUTBOX_WORKER_ENABLED")[1:3] == ("false", "true")
        assert row(settings, "WORKER_ID")[1:3] == ("not set", "")

    def test_derived_defaults_explain_themselves(self) -> None:
        """A default that depends on another setting says on which, and shows its present value."""
        heartbeat = row(load(OUTBOX_LEASE_DURATION_MS="1000"), "OUTBOX_LEASE_HEARTBEAT_MS")
        assert heartbeat.value == "250"
        assert heartbeat.default == "15000, at most OUTBOX_LEASE_DURATION_MS / 4"
        assert heartbeat.source == "derived"

    @pytest.mark.parametrize(
        ("dsn", "shown"),
        [
            ("postgresql://relay:hunter2@db/relevo", "postgresql://relay:***@db/relevo"),
            ("postgres://:hunter2@db:5432,db2:5432/r", "postgres://:***@db:5432,db2:5432/r"),
            ("postgresql://re@azure:hunter2@db/r", "postgresql://re@azure:***@db/r"),
            ("postgresql://relay:hunter2%40hunter2@db/r", "postgresql://relay:***@db/r"),
            (
                "postgresql://db/r?user=u&password=hunter2&port=1",
                "postgresql://db/r?user=u&password=***&port=1",
            ),
            ("postgresql://u:hunter2@db/r?sslpassword=hunter2", "postgresql://u:***@db/r?sslpassword=***"),
            ("host=db password=hunter2 user=u", "host=db password=*** user=u"),
            ("host=db password=a&hunter2 user=u", "host=db password=*** user=u"),
            ("host=db PASSWORD=hunter2", "host=db PASSWORD=***"),
            ("postgresql://relay:pass@hunter2@db/r", "postgresql://relay:***@db/r"),
            (r"host=db password = 'it\'s hunter2' user=u", "host=db password = '***' user=u"),
            (r"password=hun\ hunter2 host=db", "password=*** host=db"),
            ("postgresql://relay@db/relevo", "postgresql://relay@db/relevo"),
        ],
    )
    def test_passwords_are_hidden_in_addresses(self, dsn: str, shown: str) -> None:
        """Whatever form an address has, even a wrong one, only its password is hidden, here and in repr."""
        settings = load()
        vars(settings)["database_url"] = dsn  # some are refused when they are checked
        printed = io.StringIO()
        rich.print(settings, file=printed)
        assert row(settings, "DATABASE_URL").value == shown
        assert "hunter2" not in f"{settings!r} {settings!s} {printed.getvalue()}"

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("https://h/ocds?page=1&api_key=hunter2", "https://h/ocds?page=1&api_key=***"),
            ("https://h/ocds?apikey=hunter2&page=1", "https://h/ocds?apikey=***&page=1"),
            ("https://h/ocds?key=hunter2", "https://h/ocds?key=***"),
            ("https://h/ocds?X-Amz-Signature=hunter2", "https://h/ocds?X-Amz-Signature=***"),
            ("https://hunter2@h/ocds", "https://***@h/ocds"),
            ("https://hunter2:@h/ocds?token=hunter2", "https://***@h/ocds?token=***"),
        ],
    )
    def test_keys_are_hidden_in_web_addresses(self, address: str, shown: str) -> None:
        """A key in the query or in place of the user is not shown, the rest of the address is; nor when it is refused."""
        settings = load(OCDS_URL=address, EXPO_BASE_URL="https://h/")
        assert row(settings, "OCDS_URL").value == shown
        assert "hunter2" not in repr(settings)
        with pytest.raises(ConfigError) as refused:
            load(OCDS_URL=address.replace("https", "gopher"))
        assert "hunter2" not in str(refused.value)

    @pytest.mark.parametrize(
        "dsn",
        [
            "host=/run/pg dbname=r",
            "postgresql://h1:5432,h2:5433/r",
            "host=@abstract",
            "service=relay",
            "dbname=r",
        ],
    )
    def test_every_kind_of_address_is_accepted(self, dsn: str) -> None:
        """Whatever libpq takes is an address: sockets, several hosts, services, pairs."""
        assert load(DATABASE_URL=dsn).database_url == dsn

    def test_secrets_are_only_set_or_not_set(self) -> None:
        """A setting that is all secret shows neither its value nor its length."""

        settings = load(EXPO_ACCESS_TOKEN="hunter2")
        assert row(settings, "EXPO_ACCESS_TOKEN").value == "set"
        assert row(load(), "EXPO_ACCESS_TOKEN").value == "not set"
        assert "hunter2" not in f"{settings!r} {config.describe(settings)}"


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
