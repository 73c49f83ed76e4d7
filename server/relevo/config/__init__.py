"""Every setting: its name, its meaning, its bounds. No other module reads the environment."""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from dotenv.parser import parse_stream
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from relevo.config.fields import After, Before, Field, Frozen, SecretStr, SettingsError, UnfitError, fields_of
from relevo.core import cron
from relevo.core.errors import ConfigError
from relevo.core.logs import scrub
from relevo.core.proxies import Proxies

ENV_FILE = Path(".env")
_MAX_QUOTED = 100
_MAX_PROJECT = 200
Origin = Literal["environment", ".env", "derived", "default"]
SOURCES = ("chilecompra", "chilecompra-web", "ocds", "folder")
CYCLES = ("reaper", "ingest", "fanout", "dispatch", "receipt", "cleanup", "archive-export")
NO_SOURCES = "none"
PUSH_CONNECTIONS = 6
"""How many requests at once a push service bears for one project."""
REJECT_ATTEMPTS = 20
"""How often a reject is tried again by itself: some days."""

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def _address(text: str) -> str:
    if not _is_address(text):
        wanted = "must be a PostgreSQL address such as postgresql://user:password@host:5432/database"
        raise ValueError(f"{wanted}, special characters in the password percent-encoded")
    return text


def _is_address(text: str) -> bool:
    # libpq's own complaint may quote parts of a password, so it is not passed on.
    try:
        parts = conninfo_to_dict(text)
    except (ProgrammingError, UnicodeError):
        return False
    # An unescaped @ or : in a password ends up here, and would be printed when connecting fails.
    host, ports = str(parts.get("host") or ""), str(parts.get("port") or "")
    return "@" not in host[1:] and all(port.isdecimal() for port in ports.split(",") if port)


def _cron(text: str) -> str:
    cron.parse(text)
    return text


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be the name of a time zone such as America/Santiago") from None
    return text


def _worker_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", text):
        raise ValueError("must be 1 to 100 characters out of A-Z a-z 0-9 . _ : -")
    return text


def _names(given: object) -> object:
    if not isinstance(given, str):
        return given
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise ValueError("must be names separated by commas")
    return names


def _sources(names: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(names))
    if chosen == (NO_SOURCES,):
        return ()
    if not set(chosen) <= set(SOURCES):
        raise ValueError(f"must be names out of {', '.join(SOURCES)}, or {NO_SOURCES}")
    return chosen


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must be a web address such as https://example.org/path")
    return text


def _proxy(text: str) -> str:
    address = text if "://" in text else f"http://{text}"
    try:
        _web_address(address)
        fits = urlsplit(address).scheme == "http" and urlsplit(address).path in ("", "/")
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("must be the address of an HTTP proxy such as http://proxy.example:3128")
    return address.rstrip("/")


def _namespace(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", text):
        raise ValueError("must be 1 to 100 characters out of A-Z a-z 0-9 . _ : -")
    return text


def _host(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.:_-]{1,255}", text):
        raise ValueError("must be a host name or an address such as 127.0.0.1")
    return text


def _project(text: str) -> str:
    if len(text) > _MAX_PROJECT:
        raise ValueError(f"must be a project's name, of at most {_MAX_PROJECT} characters")
    return text


def _origins(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?", name) for name in names):
        raise ValueError("must be web origins such as https://app.example, separated by commas")
    return names


def _bearable(connections: int) -> int:
    return min(connections, PUSH_CONNECTIONS)


def _lower(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


def _function_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("must be module:function, as in mine:parts")
    return text


def _folder(path: Path) -> Path:
    with _unreachable("must be a folder that can be reached"):
        path = path.expanduser()
        if path.exists() and not path.is_dir():
            raise ValueError("must be a folder, not a file")
        return path


def _secret_file(path: Path) -> Path:
    with _unreachable("must be a file that exists"):
        path = path.expanduser()
        if not path.is_file():
            raise ValueError("must be a file that exists")
        if path.stat().st_mode & 0o077:
            raise ValueError("must be a file that nobody but its owner may read: chmod 600")
    return path


def _existing_folder(path: Path) -> Path:
    with _unreachable("must be a folder that exists"):
        path = path.expanduser()
        if not path.is_dir():
            raise ValueError("must be a folder that exists")
        return path


@contextmanager
def _unreachable(complaint: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise ValueError(f"{complaint}, and that this user may reach: run this as the service's user") from None
    except (OSError, RuntimeError):
        raise ValueError(complaint) from None


def _bucket(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", text):
        raise ValueError("must be the name of a bucket, 2 to 63 characters out of A-Z a-z 0-9 . _ -")
    return text


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*", text) or len(text) > _MAX_QUOTED:
        raise ValueError("must be names out of A-Z a-z 0-9 . _ = - with single slashes between them")
    if {".", ".."} & set(text.split("/")):
        raise ValueError("must be names below the bucket or folder, none of them . or ..")
    return text


Address = Annotated[str, After(_address)]
Cron = Annotated[str, After(_cron)]
Names = Annotated[tuple[str, ...], Before(_names)]
WebAddress = Annotated[str, After(_web_address)]
ProxyAddress = Annotated[str, After(_proxy)]
SecretFile = Annotated[Path, After(_secret_file)]
ExistingFolder = Annotated[Path, After(_existing_folder)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], Before(_lower)]
LogFormat = Annotated[Literal["console", "json"], Before(_lower)]


class Ceiling(NamedTuple):
    """A default that gives way: `nominal`, but never more than a `part`-th of the setting `of`."""

    nominal: int
    of: str
    part: int

    def __call__(self, data: dict[str, Any]) -> int:
        """Return the default that fits the settings validated so far."""
        return min(self.nominal, int(data[self.of]) // self.part)

    def __str__(self) -> str:
        share = self.of.upper() if self.part == 1 else f"{self.of.upper()} / {self.part}"
        return f"{self.nominal}, at most {share}"


class SameAs(NamedTuple):
    """A default that is another setting's value."""

    of: str

    def __call__(self, data: dict[str, Any]) -> Any:
        """Return the other setting's value."""
        return data[self.of]

    def __str__(self) -> str:
        return f"same as {self.of.upper()}"


class Configured(NamedTuple):
    """A default that names the sources which the settings before it speak of; with no setting at all, the sample."""

    nominal: tuple[str, ...]

    def __call__(self, data: dict[str, Any]) -> tuple[str, ...]:
        """Return the sources that something was said about."""
        said = {
            "chilecompra": data["chilecompra_ticket"],
            "chilecompra-web": data["chilecompra_web_enabled"],
            "ocds": data["ocds_url"] or data["ocds_folder"],
            "folder": data["folder_source_dir"],
        }
        found = tuple(name for name, value in said.items() if value)
        # Invented tenders are for the embedded demo alone, never for somebody's real database.
        return found or (self.nominal if data["database_url"] is None else ())

    def __str__(self) -> str:
        return f"those whose ticket, address or folder is set; without DATABASE_URL {','.join(self.nominal)}"


class WhenSet(NamedTuple):
    """A default that is true exactly when another setting is set."""

    of: str

    def __call__(self, data: dict[str, Any]) -> bool:
        """Tell whether it is set."""
        return data[self.of] is not None

    def __str__(self) -> str:
        return f"true with {self.of.upper()}, else false"


class BesideData(NamedTuple):
    """A default folder for the embedded demo: beside its data, unless a bucket is set."""

    name: str

    def __call__(self, data: dict[str, Any]) -> Path | None:
        """Return the folder, or None where real services are set."""
        alone = data["database_url"] is None and data["archive_bucket"] is None
        return data["relevo_data_dir"] / self.name if alone else None

    def __str__(self) -> str:
        return f"without DATABASE_URL and ARCHIVE_BUCKET the folder {self.name} in RELEVO_DATA_DIR, else none"


class OnSandbox(NamedTuple):
    """A default that differs while pushes go to the embedded sandbox, for somebody sits before it and waits."""

    there: int
    nominal: int

    def __call__(self, data: dict[str, Any]) -> int:
        """Return the one or the other."""
        elsewhere = (data["database_url"], data["expo_base_url"], data["expo_access_token"])
        return self.nominal if any(elsewhere) else self.there

    def __str__(self) -> str:
        return f"{self.nominal}, with the embedded sandbox {self.there}"


def _setting(meaning: str, default: Any = None, bounds: tuple[int, int] | None = None) -> Any:
    if isinstance(default, Ceiling | SameAs | Configured | WhenSet | BesideData | OnSandbox):
        return Field(None, meaning, cast("Any", default), bounds)
    return Field(default, meaning, None, bounds)


def _number(meaning: str, default: int | Ceiling | OnSandbox | None, low: int, high: int) -> Any:
    return _setting(meaning, default, (low, high))


def _own_interval(what: str) -> Any:
    return _number(f"How often {what}, in minutes; without it as WORKER_INTERVAL_MINUTES says.", None, 1, 1_440)


def _of_lease(nominal: int, part: int) -> Ceiling:
    return Ceiling(nominal, "outbox_lease_duration_ms", part)


class Settings(Frozen):
    """All settings of one process, validated and frozen; made by `load`."""

    # What a default refers to stands before it.
    database_url: Address | None = _setting(
        "The PostgreSQL to use, maybe through PgBouncer in transaction mode; without it one is embedded."
    )
    database_direct_url: Address | None = _setting(
        "The same database without a pooler in between, for LISTEN and migrations.", SameAs("database_url")
    )
    database_max_connections: int = _number(
        "Connections one replica may open in all: one listens, one extends leases, the rest are a pool.",
        8,
        4,
        100,
    )
    database_connect_timeout_ms: int = _number(
        "How long opening a connection may take, in milliseconds.", 5 * SECOND, 10, 5 * MINUTE
    )
    relevo_app: Annotated[str, After(_function_name)] | None = _setting(
        "The module:function that returns relevo.Parts: your own sources, providers, cycles, composers and more."
    )
    relevo_instance: Annotated[str, After(_namespace)] | None = _setting(
        "The name of this installation, such as production: a copy of its database under another name pushes to nobody."
    )
    relevo_data_dir: Annotated[Path, After(_folder)] = _setting(
        "The folder in which the embedded PostgreSQL lives.", Path(".relevo")
    )
    relevo_demo: bool = _setting(
        "Whether an embedded PostgreSQL may be made where there is none, without DATABASE_URL; `make` sets it.", False
    )
    relevo_postgres_bin: Annotated[Path, After(_existing_folder)] | None = _setting(
        "The folder with the PostgreSQL programs to embed; without it they are looked for."
    )

    outbox_lease_duration_ms: int = _number(
        "How long a claim is held without a heartbeat before others may take it over, in milliseconds.",
        MINUTE,
        300,
        HOUR,
    )
    outbox_lease_heartbeat_ms: int = _number(
        "How often a claim's lease is extended, in milliseconds.", _of_lease(15 * SECOND, 4), 10, HOUR
    )
    database_statement_timeout_ms: int = _number(
        "How long one statement may run, in milliseconds.", _of_lease(15 * SECOND, 4), 10, HOUR
    )
    database_lock_timeout_ms: int = _number(
        "How long one statement may wait for a lock, in milliseconds.", _of_lease(5 * SECOND, 4), 10, HOUR
    )
    database_idle_transaction_timeout_ms: int = _number(
        "How long a transaction may sit idle before PostgreSQL ends it, in milliseconds.",
        _of_lease(10 * SECOND, 4),
        10,
        HOUR,
    )
    database_answer_margin_ms: int = _number(
        "How long after DATABASE_STATEMENT_TIMEOUT_MS an answer may still be missing before the connection is dropped, "
        "in milliseconds.",
        5 * SECOND,
        100,
        HOUR,
    )
    database_long_statement_timeout_ms: int = _number(
        "How long one migration, or one statement of an export or a restore, may run, in milliseconds.",
        30 * MINUTE,
        SECOND,
        DAY,
    )
    push_request_timeout_ms: int = _number(
        "How long one request to the push service may take, in milliseconds.",
        _of_lease(10 * SECOND, 4),
        10,
        HOUR,
    )
    push_connect_timeout_ms: int = _number(
        "How long connecting to the push service may take, in milliseconds.",
        Ceiling(3 * SECOND, "push_request_timeout_ms", 1),
        10,
        HOUR,
    )
    outbox_batch_size: int = _number("How many deliveries one claim takes at most.", 1_000, 1, 10_000)
    outbox_concurrency: Annotated[int, After(_bearable)] = _number(
        f"How many requests for one project may be under way at once, in the whole fleet; more than "
        f"{PUSH_CONNECTIONS}, which is what Expo bears, means {PUSH_CONNECTIONS}.",
        PUSH_CONNECTIONS,
        1,
        1_000,
    )
    outbox_poison_lapses: int = _number(
        "A delivery whose claim lapsed this often without being sent ends as failed.", 5, 2, 100
    )
    outbox_suspect_lapses: int = _number(
        "From this many lapses on a delivery is claimed alone.", Ceiling(2, "outbox_poison_lapses", 2), 1, 99
    )
    outbox_max_attempts: int = _number("How often a delivery is tried before it ends as failed.", 9, 1, 100)
    outbox_retry_max_ms: int = _number("The longest wait between two attempts, in milliseconds.", HOUR, 1, 7 * DAY)
    outbox_retry_base_ms: int = _number(
        "The wait before the second attempt, doubled for each one after it, in milliseconds.",
        Ceiling(MINUTE, "outbox_retry_max_ms", 1),
        1,
        7 * DAY,
    )
    outbox_retry_jitter_ms: int = _number(
        "Up to this much is added to each wait between attempts, in milliseconds.", 500, 0, HOUR
    )

    expo_base_url: WebAddress | None = _setting(
        "The address of the push service; without it Expo's own, or with no setting at all an embedded sandbox."
    )
    expo_access_token: SecretStr | None = _setting(
        "The token with which Expo is asked; needed by enhanced push security."
    )
    expo_access_tokens: SecretStr | None = _setting(
        "Access tokens of single projects as a JSON object by project; EXPO_ACCESS_TOKEN is for all others."
    )
    expo_access_tokens_file: SecretFile | None = _setting(
        "A file with such a JSON object instead, which nobody but its owner may read (mode 600). It is read again when "
        'it changed, so that a token is rotated without a restart; "*" stands for every project that it does not name.'
    )
    webhooks_file: SecretFile | None = _setting(
        "A file of mode 600 with the addresses of webhooks as JSON: url and secret (whsec_…) by name, or two secrets "
        "while one takes over; it is read again when it has changed."
    )
    push_chunk_size: int = _number("How many pushes travel in one request at most.", 100, 1, 100)
    push_ttl_s: int = _number(
        "For how many seconds the push service keeps a push of an event without a deadline.", 86_400, 1, 2_419_200
    )
    push_rate_per_second: int = _number(
        "How many pushes a second one project may send, in the whole fleet; 0 lifts the limit.", 600, 0, 1_000_000
    )
    push_urgent_share_percent: int = _number(
        "The share of the rate that is the urgent lane's while both lanes are full; bulk has the rest.", 50, 1, 99
    )
    push_rate_recovery_ms: int = _number(
        "How long a rate that was halved to nothing takes to grow back to its fullness, in milliseconds.",
        5 * MINUTE,
        1,
        DAY,
    )
    push_breaker_failures: int = _number(
        "After this many failed requests, or events refused with a 400, in a row a project's breaker opens.",
        5,
        1,
        1_000,
    )
    push_credential_installations: int = _number(
        "A credential fault opens a project's breaker once this many installations met it, or all that it has.",
        5,
        1,
        100,
    )
    push_credential_percent: int = _number(
        "A credential fault opens a project's breaker if at least this share of the installations heard of met it.",
        80,
        1,
        100,
    )
    push_credential_window_ms: int = _number(
        "How long it is remembered which installations met a credential fault, in milliseconds.", HOUR, 1, DAY
    )
    push_breaker_pause_max_ms: int = _number(
        "The longest pause between two probes of an open breaker, in milliseconds.", 15 * MINUTE, 1, DAY
    )
    push_breaker_pause_ms: int = _number(
        "The pause before the first probe of an open breaker, doubled for each one after it, in milliseconds.",
        Ceiling(30 * SECOND, "push_breaker_pause_max_ms", 1),
        1,
        DAY,
    )
    push_brake_percent: int = _number(
        "No token is disabled while more than this percentage of answers says that the phone is gone.",
        20,
        1,
        100,
    )
    push_brake_min_answers: int = _number(
        "The brake on disabling tokens needs at least this many answers that the phone is gone.", 50, 1, 1_000_000
    )
    push_brake_window_ms: int = _number(
        "How far back the brake on disabling tokens looks, in milliseconds.", 10 * MINUTE, 1, DAY
    )
    push_runaway_brake: bool = _setting(
        "Whether what comes again and again, far above its own past, is held until released; urgent ones never are.",
        True,
    )
    push_runaway_factor: int = _number(
        "The runaway brake holds what comes this many times as often within an hour as on its busiest day before.",
        2,
        1,
        10_000,
    )
    push_runaway_min_events: int = _number(
        "The runaway brake lets a phone have this many events an hour of a type and origin that it knows for a week.",
        100,
        1,
        1_000_000,
    )
    push_runaway_first_events: int = _number(
        "The runaway brake lets a phone have this many events an hour of a type and origin that is new, or personal.",
        1_000,
        1,
        1_000_000,
    )
    push_runaway_repeats: int = _number(
        "The runaway brake holds an event whose pushes were each tried again this often within an hour.", 10, 1, 1_000
    )
    receipt_first_poll_ms: int = _number(
        "How long after sending a receipt is first asked for, in milliseconds.",
        OnSandbox(6 * SECOND, 15 * MINUTE),
        1,
        12 * HOUR,
    )
    receipt_give_up_ms: int = _number(
        "How long after sending a delivery without a receipt ends as unconfirmed, in milliseconds.", DAY, 1, 7 * DAY
    )
    receipt_chunk_size: int = _number("How many receipts one request asks for at most.", 300, 1, 1_000)

    outbox_worker_enabled: bool = _setting("Whether cycles are started at all, by schedule, tick or hand.", True)
    worker_id: Annotated[str, After(_worker_id)] | None = _setting(
        "This replica's name, different from every other's; without it each start makes its own."
    )
    worker_cycles: Names | None = _setting("The cycles this replica runs, separated by commas; without it all.")
    worker_event_types: Names | None = _setting(
        "The event types this replica sends, separated by commas; without it all."
    )
    worker_shutdown_timeout_ms: int = _number(
        "How long work in flight may go on after a request to stop, in milliseconds.",
        _of_lease(30 * SECOND, 1),
        0,
        HOUR,
    )
    worker_busy_loop_delay_ms: int = _number(
        "The pause after a run that found work, in milliseconds; after one of fan-out or dispatch that left nothing, "
        "ten times what it took if that is less.",
        250,
        0,
        10 * MINUTE,
    )
    worker_stay_ms: int = _number(
        "How long a run of fan-out or dispatch that found work stays for more before it ends, in milliseconds; "
        "no longer than a lease, and not at all while calls cannot be heard.",
        SECOND,
        0,
        MINUTE,
    )
    worker_idle_backoff_max_ms: int = _number(
        "The longest pause after runs that found nothing, in milliseconds.", 30 * SECOND, 1, HOUR
    )
    worker_idle_backoff_min_ms: int = _number(
        "The pause after the first run that found nothing, doubled for each one after it, in milliseconds.",
        Ceiling(SECOND, "worker_idle_backoff_max_ms", 1),
        1,
        HOUR,
    )
    worker_idle_backoff_jitter_ms: int = _number(
        "Up to this much is added to each pause, in milliseconds.", 500, 0, 10 * MINUTE
    )
    worker_tick_loop_error_backoff_ms: int = _number(
        "The pause after a run that failed, in milliseconds.", 30 * SECOND, 0, HOUR
    )
    worker_tick_loop_max_jitter_ms: int = _number(
        "Up to this much is added to the pause after a run that failed, in milliseconds.",
        2 * SECOND,
        0,
        10 * MINUTE,
    )

    worker_tick_runners: Names = _setting(
        "The cycles `relevo tick` runs, in this order, separated by commas.",
        ("reaper", "ingest", "fanout", "dispatch", "receipt", "cleanup", "archive-export"),
    )
    worker_tick_overall_max_ms: int = _number("How long one tick may take in all, in milliseconds.", 480_000, 1, DAY)
    worker_tick_runner_max_ms: int = _number(
        "How long each cycle of a tick may take, in milliseconds.",
        Ceiling(MINUTE, "worker_tick_overall_max_ms", 1),
        1,
        DAY,
    )
    worker_tick_runner_max_items: int = _number(
        "How many items each cycle of a tick may process.", 100_000, 1, 1_000_000_000
    )
    worker_tick_shard_count: int | None = _number(
        "Into how many shards ticks divide the deliveries; goes with WORKER_TICK_SHARD_INDEX.",
        None,
        1,
        10_000,
    )
    worker_tick_shard_index: int | None = _number(
        "Which shard this tick processes, counted from 0; goes with WORKER_TICK_SHARD_COUNT.", None, 0, 9_999
    )

    chilecompra_ticket: SecretStr | None = _setting("The ticket with which ChileCompra's API is asked.")
    chilecompra_base_url: WebAddress = _setting(
        "The address of ChileCompra's API.", "https://api.mercadopublico.cl/servicios/v1/publico"
    )
    chilecompra_pace_ms: int = _number(
        "The pause between two requests to ChileCompra, longer while it complains, in milliseconds.",
        3_500,
        0,
        10 * MINUTE,
    )
    chilecompra_daily_limit: int = _number(
        "How many requests a day one ticket may make, counted for the whole fleet.", 10_000, 1, 1_000_000
    )
    chilecompra_web_enabled: bool = _setting("Whether Mercado Público's search page may be read as a source.", False)
    chilecompra_web_base_url: WebAddress = _setting(
        "The address of Mercado Público's search page.", "https://www.mercadopublico.cl/BuscarLicitacion"
    )
    ocds_url: WebAddress | None = _setting("The address of OCDS packages; their links to the next page are followed.")
    ocds_folder: ExistingFolder | None = _setting("A folder with OCDS packages, instead of OCDS_URL.")
    ocds_done_dir: ExistingFolder | None = _setting(
        "The folder to which files of OCDS_FOLDER are moved a minute after they were read; without it they stay."
    )
    ocds_namespace: Annotated[str, After(_namespace)] | None = _setting(
        "The register the OCDS tenders belong to; without it their ocid's prefix, and chilecompra for Chile's."
    )
    folder_source_dir: ExistingFolder | None = _setting(
        "The folder in which JSON lines files with tenders are dropped; without it a bundled sample is read."
    )
    folder_source_done_dir: ExistingFolder | None = _setting(
        "The folder to which files of FOLDER_SOURCE_DIR are moved a minute after they were read; without it they stay."
    )
    sources: Annotated[Names, After(_sources)] = _setting(
        f"Where tenders come from, separated by commas: {', '.join(SOURCES)}, or {NO_SOURCES}.",
        Configured(("folder",)),
    )
    worker_interval_minutes: int = _number(
        "How often each source is asked, in minutes, unless it has an interval of its own.", 2, 1, 1_440
    )
    chilecompra_interval_minutes: int | None = _own_interval("ChileCompra's API is asked")
    chilecompra_web_interval_minutes: int | None = _own_interval("Mercado Público's search page is read")
    ocds_interval_minutes: int | None = _own_interval("OCDS packages are asked for")
    folder_interval_minutes: int | None = _own_interval("the folder is looked into")
    ingest_catchup_days: int = _number("How many missed days are read after an outage.", 30, 1, 3_650)
    ingest_notify_first_run: bool = _setting(
        "Whether what a source tells on its very first run is announced too, rather than only stored.", False
    )
    http_timeout_ms: int = _number(
        "How long one request to a source may take in all, in milliseconds.", 30 * SECOND, 10, 10 * MINUTE
    )
    http_max_bytes: int = _number(
        "How many bytes one answer or file of a source may have, unpacked.", 50_000_000, 1_000, 2_000_000_000
    )
    http_allow_private: bool = _setting(
        "Whether sources and webhooks may lead to private, loopback or link-local addresses.", False
    )

    https_proxy: ProxyAddress | None = _setting(
        "The HTTP proxy through which https addresses are reached: the push service, sources, S3."
    )
    http_proxy: ProxyAddress | None = _setting("The HTTP proxy through which http addresses are reached.")
    no_proxy: Names | None = _setting(
        "What is reached without a proxy, as loopback is: names with their subdomains, addresses, networks, or *, "
        "separated by commas."
    )

    http_enabled: bool = _setting("Whether `relevo run` serves HTTP, too; `relevo serve` does it alone.", True)
    http_host: Annotated[str, After(_host)] = _setting(
        "The address on which HTTP is served; the default is for this machine only.", "127.0.0.1"
    )
    http_port: int = _number(
        "The port on which HTTP is served, 0 for any that is free; without DATABASE_URL the next free one from it on.",
        8080,
        0,
        65_535,
    )
    http_pool_size: int = _number(
        "Connections to the database that serving HTTP may open, beside those of DATABASE_MAX_CONNECTIONS; "
        "/health/ready has one more of its own.",
        4,
        1,
        50,
    )
    http_pool_wait_ms: int = _number(
        "How long a request may wait for one of these before it is answered 503, in milliseconds.",
        2 * SECOND,
        10,
        MINUTE,
    )
    http_max_body_bytes: int = _number("How many bytes the body of a request may have.", 1_000_000, 1_000, 100_000_000)
    http_max_header_bytes: int = _number(
        "How many bytes the headers of a request may have, its first line included.", 32_768, 4_096, 1_000_000
    )
    http_header_timeout_ms: int = _number(
        "How long a caller may take for a request's headers, from its connection on, in milliseconds.",
        10 * SECOND,
        100,
        5 * MINUTE,
    )
    http_body_timeout_ms: int = _number(
        "How long a caller may take for a request's body, in milliseconds.", 30 * SECOND, 100, 30 * MINUTE
    )
    http_max_connections: int = _number(
        "How many connections HTTP holds at most. It never takes more than five eighths of the files that the process "
        "may open (`ulimit -n`): the others are for sending and for PostgreSQL. Those that wait for their callers are "
        "closed first.",
        8_000,
        1,
        100_000,
    )
    http_max_connections_per_address: int = _number(
        "How many of them one address may have, three quarters of all at most; a proxy in front is one address.",
        6_000,
        1,
        100_000,
    )
    http_rate_per_second: int = _number(
        "How many requests a second one caller may make of one replica, twice that at once; 0 lifts the limit.",
        200,
        0,
        100_000,
    )
    http_signing_keys_file: SecretFile | None = _setting(
        "A file of mode 600 with the keys by which the app's server signs for phones, as JSON: secret (base64) and "
        "maybe project, by name."
    )
    http_open_registration: Annotated[str, After(_project)] | None = _setting(
        "The project in which phones may register themselves over HTTP without token or signature, without an owner."
    )
    http_cors_origins: Annotated[Names, After(_origins)] | None = _setting(
        "The web origins whose pages may call, separated by commas, such as https://app.example; without it none."
    )
    metrics_port: int | None = _number(
        "A port of its own for /metrics, without a token, on HTTP_HOST; without it /metrics asks for a viewer's token.",
        None,
        0,
        65_535,
    )

    reaper_interval_ms: int = _number(
        "How often expired claims are taken back, in milliseconds.", _of_lease(10 * SECOND, 2), 10, HOUR
    )
    fanout_interval_minutes: int = _number(
        "How often events are fanned out at the latest, in minutes; new ones wake it up.", 1, 1, 60
    )
    fanout_slice_size: int = _number(
        "How many candidates one slice of a fan-out takes, committed together.", 10_000, 1, 100_000
    )
    dispatch_interval_minutes: int = _number(
        "How often deliveries are sent at the latest, in minutes; new ones wake it up.", 1, 1, 60
    )
    receipt_interval_minutes: int = _number("How often receipts are asked for, in minutes.", 1, 1, 60)
    cleanup_cron: Cron = _setting("When the nightly cleanup runs, as a cron expression.", "17 3 * * *")
    worker_timezone: Annotated[str, After(_timezone)] = _setting(
        "The time zone in which cron expressions are read; a time the clock jumps over runs after the jump, one that "
        "comes twice runs once.",
        "America/Santiago",
    )
    worker_misfire_grace_ms: int = _number(
        "How late a scheduled run may still start, in milliseconds.", HOUR, 10, 7 * DAY
    )
    partitions_ahead_months: int = _number("How many months of partitions exist ahead of today.", 2, 1, 24)
    runs_retention_days: int = _number(
        "For how many days finished runs are kept, and with them rejects, incidents and projects that nothing uses.",
        90,
        1,
        3_650,
    )
    news_backlog_limit: int = _number(
        "How many news a subscription may have waiting; beyond that the oldest are dropped and counted.",
        100_000,
        1,
        10_000_000,
    )
    news_retention_days: int = _number("For how many days news that nobody read are kept.", 7, 1, 3_650)
    audit_retention_days: int = _number("For how many days the record of what operators did is kept.", 400, 1, 36_500)
    dead_phones_retention_days: int = _number(
        "For how many days a phone is kept, with its owner's name and preferences, after its token was disabled or it "
        "was unregistered.",
        90,
        1,
        36_500,
    )
    deliveries_retention_days: int = _number(
        "For how many days after a month's end its deliveries, journal and events stay hot.", 90, 1, 36_500
    )
    licitaciones_hot_months: int = _number("For how many whole months tenders stay hot.", 12, 1, 1_200)

    archive_export_cron: Cron = _setting("When retired months are exported, as a cron expression.", "47 3 * * *")
    archive_bucket: Annotated[str, After(_bucket)] | None = _setting(
        "The S3 bucket to which retired months are exported; without it and ARCHIVE_FOLDER they stay in the database."
    )
    archive_prefix: Annotated[str, After(_prefix)] = _setting(
        "What the keys of all objects begin with, in a bucket or folder.", "relevo"
    )
    archive_region: str | None = _setting("The bucket's region; without it as the environment of AWS says.")
    archive_endpoint: WebAddress | None = _setting("The address of an S3-compatible service, for other than AWS.")
    archive_path_style: bool = _setting(
        "Whether the bucket's name stands in the path rather than in the host name.", WhenSet("archive_endpoint")
    )
    archive_sse: Literal["none", "AES256", "aws:kms"] = _setting(
        "How the service encrypts what is stored: none, AES256 or aws:kms.", "none"
    )
    archive_sse_kms_key_id: str | None = _setting("The key to encrypt with; goes with ARCHIVE_SSE=aws:kms.")
    archive_timeout_ms: int = _number(
        "How long the archive's service may be silent within one request, in milliseconds.",
        30 * SECOND,
        10,
        10 * MINUTE,
    )
    archive_folder: Annotated[Path, After(_folder)] | None = _setting(
        "The folder to which retired months are exported, instead of a bucket.", BesideData("archive")
    )
    archive_part_rows: int = _number("How many rows of a month one file holds at most.", 250_000, 1, 10_000_000)
    archive_busy_share_percent: int = _number(
        "The share of the time that export takes while others write to the database; 100: it does not step back.",
        5,
        1,
        100,
    )
    archive_grace_days: int = _number(
        "For how many days a month stays in the database after its export was verified.", 7, 0, 3_650
    )

    log_level: LogLevel = _setting("The least important lines to log: debug, info, warning or error.", "info")
    log_format: LogFormat = _setting("How lines are logged: console for the eye, json for machines.", "console")

    # Not settings: what `load` noticed.
    origins: Mapping[str, Origin] = {}
    warnings: tuple[str, ...] = ()

    @property
    def proxies(self) -> Proxies:
        """The proxies through which the world is reached."""
        return Proxies(self.http_proxy, self.https_proxy, self.no_proxy or ())

    @property
    def sample_folder(self) -> Path:
        """Where the demo's tenders lie, beside the embedded database."""
        return self.relevo_data_dir / "sample"

    def __repr__(self) -> str:
        shown = (f"{name}={_show(getattr(self, name))!r}" for name in _fields(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


class SettingRow(NamedTuple):
    """One setting as a person reads it."""

    name: str
    value: str
    default: str
    meaning: str
    source: Origin


class Limit(NamedTuple):
    """A number that must stay below, or at, a part of another."""

    name: str
    of: str
    part: int = 1
    may_equal: bool = False

    def holds(self, settings: Settings) -> bool:
        """Say whether the two settings fit together."""
        value, ceiling = getattr(settings, self.name) * self.part, getattr(settings, self.of)
        return bool(value <= ceiling if self.may_equal else value < ceiling)

    def complaint(self, settings: Settings) -> str:
        """Say which setting is wrong and what would be right."""
        share = {1: "", 2: "half of ", 3: "a third of "}[self.part]
        bound = f"{'at most' if self.may_equal else 'less than'} {share}{self.of.upper()}"
        return f"must be {bound} ({getattr(settings, self.of)}), got {getattr(settings, self.name)}"


LIMITS = (
    Limit("outbox_lease_heartbeat_ms", "outbox_lease_duration_ms", 3),
    Limit("database_statement_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("database_lock_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("database_idle_transaction_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("push_request_timeout_ms", "outbox_lease_duration_ms", 2),
    Limit("push_connect_timeout_ms", "push_request_timeout_ms", may_equal=True),
    Limit("push_breaker_pause_ms", "push_breaker_pause_max_ms", may_equal=True),
    Limit("receipt_first_poll_ms", "receipt_give_up_ms"),
    Limit("worker_shutdown_timeout_ms", "outbox_lease_duration_ms", may_equal=True),
    Limit("reaper_interval_ms", "outbox_lease_duration_ms"),
    Limit("outbox_suspect_lapses", "outbox_poison_lapses"),
    Limit("outbox_retry_base_ms", "outbox_retry_max_ms", may_equal=True),
    Limit("worker_idle_backoff_min_ms", "worker_idle_backoff_max_ms", may_equal=True),
    Limit("worker_tick_runner_max_ms", "worker_tick_overall_max_ms", may_equal=True),
)


_ALSO_SMALL = ("https_proxy", "http_proxy", "no_proxy")
"""Names that other programs write in small letters, too."""


class _Given(NamedTuple):
    value: str
    source: Origin


def load(
    environ: Mapping[str, str] | None = None, env_file: Path | None = ENV_FILE, *, cycles: Sequence[str] = ()
) -> Settings:
    """Read, check and freeze the settings, or complain once about all that is wrong.

    `cycles` are the only ones there are, where that is known: whoever brings cycles of its own leaves it out.
    """
    environ = os.environ if environ is None else environ
    in_file, problems = _read_env_file(env_file)
    given = _gather(environ, in_file)
    values: dict[str, Any] = {name: each.value for name, each in given.items()}
    wrong = _field_complaints(given)
    settings = Settings(
        **{name: value for name, value in values.items() if name not in wrong},
        origins={name: each.source for name, each in given.items()},
        warnings=(*_strangers({**in_file, **environ}), *_lowered(given)),
    )
    related = {**_limit_complaints(settings), **_pair_complaints(settings), **_cycle_complaints(settings, cycles)}
    problems += [_complain(name, wrong[name], given) for name in values if name in wrong]
    problems += [_complain(names[0], text, given) for names, text in related.items() if wrong.keys().isdisjoint(names)]
    if problems:
        raise _error(problems)
    return settings


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with some more in it, for a program we start."""
    return {**os.environ, **more}


def describe(settings: Settings) -> list[SettingRow]:
    """List every setting with its value, default, meaning and where its value came from."""
    return [
        SettingRow(
            name.upper(),
            _show(getattr(settings, name)),
            _default(field),
            field.description or "",
            _source(settings, name, field),
        )
        for name, field in _fields(type(settings)).items()
    ]


def example() -> str:
    """Write the `.env.example`: every setting with its meaning, its default commented out."""
    head = (
        "# Every setting of Relevo and its default. Copy this to .env and uncomment what should differ;\n"
        "# variables of the environment win over .env, and an empty value counts as unset.\n"
    )
    return "\n".join([head, *(_example(name, field) for name, field in _fields(Settings).items())])


def _example(name: str, field: Field) -> str:
    default, meaning = field.default_factory, f"# {field.description}"
    if bounds := field.bounds:
        meaning += f" From {bounds[0]} to {bounds[1]}."
    if default:
        meaning += f"\n# Default: {default}."
    value = default.nominal if isinstance(default, Ceiling) else "" if default else _default(field)
    return f"{meaning}\n# {name.upper()}={value}\n"


def _fields(model: type[Settings]) -> dict[str, Field]:
    return {name: field for name, field in fields_of(model).items() if field.description}


def _read_env_file(path: Path | None) -> tuple[dict[str, str], list[str]]:
    """Return what the file holds, and a complaint for each line that cannot be read."""
    if path is None:
        return {}, []
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"{path} must be a readable text file, got {type(error).__name__}"]
    broken = [each.original.line for each in bindings if each.error or (each.key and each.value is None)]
    values = {each.key: each.value for each in bindings if each.key and each.value is not None}
    return values, [f"{path} line {line} must be NAME=value" for line in broken]


def _gather(environ: Mapping[str, str], in_file: Mapping[str, str]) -> dict[str, _Given]:
    """Pick our settings out of both, the environment first; an empty value counts as unset."""
    places: tuple[tuple[Origin, Mapping[str, str]], ...] = (("environment", environ), (".env", in_file))
    given: dict[str, _Given] = {}
    for name in _fields(Settings):
        for source, place in places:
            value = (place.get(name.upper()) or (place.get(name, "") if name in _ALSO_SMALL else "")).strip()
            if value:
                given[name] = _Given(value, source)
                break
    return given


def _field_complaints(given: Mapping[str, _Given]) -> dict[str, str]:
    values: dict[str, Any] = {name: each.value for name, each in given.items()}
    try:
        Settings(**values)
    except SettingsError as error:
        # Defaults are right by themselves; they fail only along with the setting they refer to.
        found = error.reasons
        return {name: _explain(name, found[name], values[name]) for name in values if name in found}
    return {}


def _explain(name: str, reason: ValueError, value: str) -> str:
    field = fields_of(Settings)[name]
    wanted = f"must be {_wanted(field, value)}" if isinstance(reason, UnfitError) else str(reason)
    return wanted if _is_secret(field) else f"{wanted}, got {_quote(value)}"


def _wanted(field: Field, value: str) -> str:
    if bounds := field.bounds:
        whole = "" if _is_whole(value) else "a whole number "
        return f"{whole}between {bounds[0]} and {bounds[1]}"
    if field.annotation is bool:
        return "true or false"
    choices = [str(each) for each in get_args(field.annotation) if isinstance(each, str)]
    return f"one of {', '.join(choices)}" if choices else "text"


def _is_secret(field: Field) -> bool:
    kinds = {field.annotation, *get_args(field.annotation)}
    return bool(kinds & {Address, ProxyAddress, SecretStr})


def _quote(value: str) -> str:
    return value if _is_whole(value) else repr(scrub(value[:_MAX_QUOTED]))


def _is_whole(value: str) -> bool:
    return len(value) <= _MAX_QUOTED and re.fullmatch(r"[+-]?\d+", value) is not None


def _limit_complaints(settings: Settings) -> dict[tuple[str, ...], str]:
    return {(each.name, each.of): each.complaint(settings) for each in LIMITS if not each.holds(settings)}


def _pair_complaints(settings: Settings) -> dict[tuple[str, ...], str]:
    index, count = settings.worker_tick_shard_index, settings.worker_tick_shard_count
    shard = ("worker_tick_shard_index", "worker_tick_shard_count")
    found: dict[tuple[str, ...], str] = {}
    if index is None and count is not None:
        found[shard] = f"must be set along with WORKER_TICK_SHARD_COUNT ({count})"
    if index is not None and count is None:
        found[shard[::-1]] = f"must be set along with WORKER_TICK_SHARD_INDEX ({index})"
    if index is not None and count is not None and index >= count:
        found[shard] = f"must be less than WORKER_TICK_SHARD_COUNT ({count}), got {index}"
    if settings.database_direct_url and not settings.database_url:
        found["database_url", "database_direct_url"] = "must be set along with DATABASE_DIRECT_URL"
    return {**found, **_source_complaints(settings), **_archive_complaints(settings)}


def _cycle_complaints(settings: Settings, known: Sequence[str]) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for setting in ("worker_cycles", "worker_tick_runners"):
        unknown = [name for name in getattr(settings, setting) or () if name.partition(":")[0] not in known]
        if known and unknown:
            found[setting,] = f"must name cycles out of {', '.join(known)}, got {unknown[0][:_MAX_QUOTED]!r}"
    return found


def _archive_complaints(settings: Settings) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    if settings.archive_bucket and settings.archive_folder:
        found["archive_folder", "archive_bucket"] = (
            f"must not be set along with ARCHIVE_BUCKET ({settings.archive_bucket})"
        )
    if settings.archive_endpoint and not settings.archive_bucket:
        found["archive_bucket", "archive_endpoint"] = "must be set along with ARCHIVE_ENDPOINT"
    if settings.archive_sse_kms_key_id and settings.archive_sse != "aws:kms":
        found["archive_sse", "archive_sse_kms_key_id"] = "must be aws:kms along with ARCHIVE_SSE_KMS_KEY_ID"
    return found


def _source_complaints(settings: Settings) -> dict[tuple[str, ...], str]:
    named, web = settings.sources, "chilecompra-web"
    found: dict[tuple[str, ...], str] = {}
    if "chilecompra" in named and not settings.chilecompra_ticket:
        found["chilecompra_ticket", "sources"] = "must be set along with chilecompra in SOURCES"
    if web in named and not settings.chilecompra_web_enabled:
        found["chilecompra_web_enabled", "sources"] = f"must be true along with {web} in SOURCES"
    if web not in named and settings.chilecompra_web_enabled:
        found["sources", "chilecompra_web_enabled"] = f"must name {web} along with CHILECOMPRA_WEB_ENABLED (true)"
    if "ocds" in named and not (settings.ocds_url or settings.ocds_folder):
        found["ocds_url", "ocds_folder", "sources"] = "or OCDS_FOLDER must be set along with ocds in SOURCES"
    if settings.ocds_url and settings.ocds_folder:
        found["ocds_url", "ocds_folder"] = "must not be set along with OCDS_FOLDER"
    return found


def _complain(name: str, text: str, given: Mapping[str, _Given]) -> str:
    in_file = name in given and given[name].source == ".env"
    return f"{name.upper()} {text}{' (in .env)' if in_file else ''}"


def _error(problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(f"{problems[0]}.", hint="Change it in the environment or in .env.")
    listed = "".join(f"\n- {problem}." for problem in problems)
    return ConfigError(f"{len(problems)} settings are wrong in the environment or in .env:{listed}")


_ELSEWHERE = {
    "OUTBOX_WORKER_POLL_MS": "DISPATCH_INTERVAL_MINUTES",
    "OUTBOX_WORKER_BATCH_SIZE": "OUTBOX_BATCH_SIZE",
    "OUTBOX_WORKER_MAX_ATTEMPTS": "OUTBOX_MAX_ATTEMPTS",
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "OUTBOX_LEASE_DURATION_MS",
    "OUTBOX_WORKER_RETRY_BASE_MS": "OUTBOX_RETRY_BASE_MS",
    "OUTBOX_WORKER_RETRY_MAX_MS": "OUTBOX_RETRY_MAX_MS",
}
"""What other workers of outboxes call what is set here by another name."""


def _strangers(names: Mapping[str, str]) -> tuple[str, ...]:
    """Warn of variables that are nearly ours: they have no effect."""
    ours = [name.upper() for name in _fields(Settings)]
    families = {name.partition("_")[0] for name in ours}
    warnings = []
    others = (name for name in set(names) - {*ours, *_ALSO_SMALL} if name.upper().partition("_")[0] in families)
    for name in sorted(others):
        if ours_is := _ELSEWHERE.get(name.upper()):
            warnings.append(f"{name} has no effect; here it is {ours_is}.")
            continue
        near = difflib.get_close_matches(name.upper(), ours, n=1, cutoff=0.85)
        if near:
            warnings.append(f"{name} has no effect; did you mean {near[0]}?")
    return tuple(warnings)


def _lowered(given: Mapping[str, _Given]) -> tuple[str, ...]:
    """Say where less is done than was asked for."""
    asked = given["outbox_concurrency"].value if "outbox_concurrency" in given else "0"
    if not _is_whole(asked) or int(asked) <= PUSH_CONNECTIONS:
        return ()
    return (
        f"OUTBOX_CONCURRENCY is {asked} and means {PUSH_CONNECTIONS}: a push service bears no more for one project.",
    )


def _show(value: object) -> str:
    match value:
        case None:
            return "not set"
        case SecretStr():
            return "set"
        case bool():
            return "true" if value else "false"
        case tuple():
            return scrub(",".join(map(str, value)))
        case _:
            return scrub(str(value))


def _default(field: Field) -> str:
    if field.default_factory:
        return str(field.default_factory)
    return "" if field.default is None else _show(field.default)


def _source(settings: Settings, name: str, field: Field) -> Origin:
    if name in settings.origins:
        return settings.origins[name]
    default, value = field.default_factory, getattr(settings, name)
    nominal = default.nominal if isinstance(default, Ceiling | Configured | OnSandbox) else None
    return "derived" if default and value != nominal else "default"
