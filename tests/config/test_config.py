"""Settings: read once, frozen, silent about secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from generate_docs import example
from relevo import config
from relevo.config import loading
from relevo.core.errors import ConfigError
from support.load_settings import complaint, load, row

ROOT = Path(__file__).parents[2]


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
    assert settings.worker_tick_runners is None
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
        assert (ROOT / ".env.example").read_text(encoding="utf-8") == example(), "run: make docs"

    def test_the_example_uncommented_is_the_default(self, tmp_path: Path) -> None:
        """Uncommenting every line of the example changes nothing."""
        rows = config.describe(load())
        names = {each.name for each in rows if each.tier == "everyday"}
        lines = [line.removeprefix("# ") for line in example().splitlines()]
        chosen = [line for line in lines if line.partition("=")[0] in names]
        file = tmp_path / ".env"
        file.write_text("\n".join(chosen))
        assert len(chosen) == len(names)
        assert [each[:2] for each in config.describe(config.load({}, env_file=file))] == [each[:2] for each in rows]

    def test_the_example_names_every_setting(self) -> None:
        """The everyday ones are few; every other one is named in the example, too."""
        rows = config.describe(load())
        assert sum(each.tier == "everyday" for each in rows) <= 30
        assert {each.name for each in rows} <= set(re.findall(r"[A-Z_]+", example()))


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

    @pytest.mark.parametrize(
        "name", ["PDF_RENDER_CONCURRENCY", "WORKER_API_BASE_URL", "WORKER_API_SERVICE_TOKEN", "worker_api_base_url"]
    )
    def test_settings_that_have_no_place_here(self, name: str) -> None:
        """A setting of other outbox workers that Relevo has no use for is not swallowed: one sentence says why."""
        (told,) = load(**{name: "5"}).warnings
        assert told.startswith(f"{name} has no effect: ")

    @pytest.mark.parametrize(("asked", "used"), [("10", 6), ("7", 6), ("1000", 6), ("6", 6), ("1", 1)])
    def test_more_requests_at_once_than_a_push_service_bears(self, asked: str, used: int) -> None:
        """OUTBOX_CONCURRENCY above six is accepted, means six, and says so once; in `relevo config`, too."""
        settings = load(OUTBOX_CONCURRENCY=asked)
        assert settings.outbox_concurrency == used
        assert row(settings, "OUTBOX_CONCURRENCY").value == str(used)
        assert "Expo allows 6: a higher value means 6" in row(settings, "OUTBOX_CONCURRENCY").meaning
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
