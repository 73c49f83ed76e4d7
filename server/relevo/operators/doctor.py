"""Checks of `relevo doctor` around the tables: settings, servers, rights, clock, vacuum, the store and Expo.

Each finding names what is wrong and the next step. What the tables themselves hold, `consistency.examine` looks at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from shlex import quote

import psycopg
import requests
from psycopg import errors as pg

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, MigrationError, RelevoError
from relevo.core.logs import normalise_error
from relevo.core.ports import ArchiveStore
from relevo.core.sending_project import project_in_words
from relevo.database import migrate, replica
from relevo.database.pool import Database
from relevo.operators import fleet, quiet_channel
from relevo.operators.consistency import Finding
from relevo.operators.formats import in_numbers, in_words
from relevo.operators.health.workers import is_somebody_at_work
from relevo.operators.reading import Row, fetch

_SQL = queries.load("doctor")
_OLDEST_VERSION = 15
_MOST_SKEW_S = 2.0
_MANY_DEAD = 10_000
_LONG_S = 600.0
_MUCH_LOG = 1 << 30
_ANSWER_S = 10.0
_BROKEN = 500
_NAMED = 5
_warning = partial(Finding, warning=True)
_harmless = partial(Finding, harmless=True)
_OF_SERVER = {
    "has_plpgsql": Finding("extension_missing", "The extension plpgsql is missing.", "Run: CREATE EXTENSION plpgsql."),
    "autovacuum": Finding(
        "autovacuum_off",
        "Autovacuum is off: the queue would slow down day by day.",
        "Set autovacuum = on in postgresql.conf, and reload it.",
    ),
    "flushes": _warning(
        "commits_unflushed",
        "synchronous_commit is off for this role or database: a crash of the server may lose an event that "
        "enqueue has acknowledged. Workers wait for the disk before they send.",
        "Set it to local or more: ALTER ROLE … SET synchronous_commit = local, or ALTER DATABASE.",
    ),
    "sees_activity": _harmless(
        "activity_hidden",
        "This role does not see other roles' transactions, so old snapshots are found only among its own.",
        "To see them, run: GRANT pg_read_all_stats TO the role.",
    ),
}
"""Findings if the server does not confirm these conditions."""


def look_around(
    database: Database,
    settings: Settings,
    *,
    store: ArchiveStore | None = None,
    expo: str | None = None,
    refused_tokens: Callable[[], Iterable[str]] = tuple,
    webhook_trouble: Callable[[str], str] = lambda _: "",
    credential_troubles: Callable[[Iterable[str]], Iterable[tuple[str, str]]] = lambda _: (),
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Look at everything but the tables' contents; `expo` is the address pushes go to, if any.

    `refused_tokens` names the settings whose access token Expo does not take; `webhook_trouble` says of a webhook's
    name why nothing could be sent there, or nothing; `credential_troubles` says of each credential of
    PUSH_PROJECTS_FILE that cannot be used where it stands and why, given the sending projects there are.
    """
    looks: list[Callable[[], Iterable[Finding]]] = [
        partial(_settings, settings),
        partial(_server, database, clock),
    ]
    if not migrate.missing(database):
        looks += [
            partial(_instance, database, settings),
            partial(_rights, database),
            partial(_archive_schema, database),
            partial(_owner_names, database),
            partial(_vacuum, database),
            partial(_replica, database, settings),
            partial(_unregistered, database, settings),
            partial(_workers, database),
            partial(_switched_off, database),
            partial(_held_up, database),
            partial(_webhooks, database, webhook_trouble),
            partial(_quiet_hours, database, settings),
            lambda: _credentials(credential_troubles([row["project"] for row in fleet.projects(database)])),
        ]
    looks += [
        partial(_held_back, database),
        partial(_store, store),
        partial(_expo, expo, settings),
        lambda: _tokens(refused_tokens()),
    ]
    return [finding for look in looks for finding in _guarded(look)]


def _guarded(look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what one look finds; a view that is hidden from this role costs that look alone."""
    try:
        yield from look()
    except (pg.InsufficientPrivilege, MigrationError) as error:
        cause = error.__cause__ or error
        yield _harmless(
            "view_hidden",
            f"This role may not read a view or function, so one check was left out: {normalise_error(cause, 200)}",
            "Run: GRANT pg_monitor TO the role.",
        )


def _settings(settings: Settings) -> Iterator[Finding]:
    for warning in settings.warnings:
        yield _harmless("setting_suspect", f"{warning.removesuffix('.')}.", "Correct its name, or remove it.")
    if settings.database_url is not None and settings.relevo_instance is None:
        yield _warning(
            "instance_unnamed",
            "RELEVO_INSTANCE is unset: a copy of this database's volume would push to real phones.",
            "Set it to a name of its own in each environment, such as production, then run `relevo adopt` once.",
        )
    if settings.http_open_registration is not None:
        yield _warning(
            "registration_open",
            f"Any stranger may register phones over HTTP in project {settings.http_open_registration}.",
            "Unset HTTP_OPEN_REGISTRATION, and sign for the phones in the app's server.",
        )


def _workers(database: Database) -> Iterator[Finding]:
    if not is_somebody_at_work(fleet.workers(database)):
        yield _warning(
            "no_worker",
            "No worker is running: Relevo fans out, sends and recovers nothing.",
            "Start `relevo run`, or schedule `relevo tick` with cron.",
        )


def _server(database: Database, clock: Callable[[], float]) -> Iterator[Finding]:
    before = clock()
    (row,) = fetch(database, _SQL["read_server"])
    after = clock()
    yield from _version(row)
    there = row["now"].timestamp()
    skew_s = max(before - there, there - after, 0.0)  # whatever lay between asking and hearing is no skew
    if skew_s > _MOST_SKEW_S:
        yield Finding(
            "clock_skewed",
            f"This machine's clock and the database's differ by {in_words(skew_s)}.",
            "Synchronize both with a time server (chrony, systemd-timesyncd): logs and signatures depend on it.",
        )


def _version(row: Row) -> Iterator[Finding]:
    if (version := row["version"] // 10_000) < _OLDEST_VERSION:
        yield Finding(
            "server_too_old",
            f"PostgreSQL is of version {version}; Relevo needs {_OLDEST_VERSION} or newer.",
            "Upgrade the server; after pg_upgrade run `relevo adopt`.",
        )
    yield from (finding for name, finding in _OF_SERVER.items() if not row[name])


def _instance(database: Database, settings: Settings) -> Iterator[Finding]:
    standing = fleet.standing(database, settings)
    if trouble := standing.trouble():
        yield Finding(
            "database_copied",
            f"{trouble[0].upper()}{trouble[1:]}.",
            "Set RELEVO_INSTANCE as that worker has it: `relevo adopt` from here would stop it."
            if standing.would_stop
            else "If it belongs here, run `relevo adopt`.",
        )
    if standing.here.system_identifier is None:
        yield _harmless(
            "identifier_hidden",
            "This role may not read the server's identifier: database number and RELEVO_INSTANCE identify a copy.",
            "To read it, run: GRANT EXECUTE ON FUNCTION pg_control_system() TO the owner of the schema.",
        )


def _replica(database: Database, settings: Settings) -> Iterator[Finding]:
    """Look whether the server of DATABASE_READ_URL answers, is a replica of this database, and is close behind."""
    with closing(replica.open_reader(database, settings)) as reader:
        if reader.replica is None:
            return
        try:
            found, home = replica.ask(reader.replica), replica.ask(database)
            behind = replica.bytes_behind(database, reader.replica)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            yield _warning(
                "replica_unreachable",
                f"The server of DATABASE_READ_URL cannot be read: {replica.said(error).removesuffix('.')}.",
                "Lists are read from the primary meanwhile; check its address and this role's rights, or unset it.",
            )
            return
    if why := found.differs_from(home):
        yield Finding(
            "replica_foreign",
            f"DATABASE_READ_URL leads to no replica of this database: {why}.",
            "It is not read from; give it the address of a standby, or unset it.",
        )
    elif behind != 0 and (found.age_s is None or found.age_s * 1000 > settings.database_read_max_lag_ms):
        age = "says nothing of its age" if found.age_s is None else f"is {in_words(found.age_s)} behind"
        left = "" if behind is None else f" and has {behind / 1e6:,.1f} MB of the log to replay"
        yield _warning(
            "replica_behind",
            f"The replica of DATABASE_READ_URL {age}{left}; DATABASE_READ_MAX_LAG_MS is "
            f"{settings.database_read_max_lag_ms:,}.",
            "Relevo reads lists from the primary until then. Check its log, its disk and its long queries.",
        )


def _unregistered(database: Database, settings: Settings) -> Iterator[Finding]:
    """Name the months that the Iceberg catalog lacks; archive-export tries those again by itself."""
    if settings.archive_iceberg_uri is None:
        return
    (row,) = fetch(database, _SQL["count_unregistered"])
    if not row["months"]:
        return
    why = f": {row['error'].removesuffix('.')}" if row["error"] else ""
    lacking = in_numbers(row["months"], "verified month is", "verified months are")
    yield Finding(
        "month_unregistered",
        f"{lacking} not in the Iceberg catalog, the oldest of {row['oldest']:%Y-%m}{why}.",
        "archive-export tries again in its next run, `relevo archive register` at once; nothing else waits for it.",
        warning=bool(why),
        harmless=not why,
    )


def _rights(database: Database) -> Iterator[Finding]:
    denied = [row["name"] for row in fetch(database, _SQL["list_denied"])]
    if denied:
        named = ", ".join(denied[:3]) + (" …" if len(denied) > 3 else "")  # noqa: PLR2004
        yield Finding(
            "rights_missing",
            f"This role may not read and write {len(denied)} of Relevo's tables: {named}.",
            "Their owner must run `relevo grant ROLE --worker`.",
        )
    if any(row["may"] for row in fetch(database, _SQL["may_forge_audit"])):
        yield _warning(
            "audit_unprotected",
            "This role may change and delete entries of the audit log, as workers of 0.3 had to.",
            "Once no worker of 0.3 runs any more, the owner must run `relevo grant ROLE --worker` again.",
        )


def _archive_schema(database: Database) -> Iterator[Finding]:
    for row in fetch(database, _SQL["find_archive_owner"]):
        yield Finding(
            "archive_schema_missing",
            "The schema relevo_archive is missing: cleanup cannot move old months out of the tables.",
            f"Have an administrator run: CREATE SCHEMA relevo_archive AUTHORIZATION {row['owner']}.",
        )


def _owner_names(database: Database) -> Iterator[Finding]:
    if any(row["undecided"] for row in fetch(database, _SQL["is_sharing_undecided"])):
        yield _warning(
            "owner_names_undecided",
            "Owners of the same name in two projects are one person since an upgrade, and tokens of one project exist.",
            "Run `relevo owner names separate`, or `relevo owner names shared` if they are.",
        )


def _vacuum(database: Database) -> Iterator[Finding]:
    for row in fetch(database, _SQL["list_bloated"], least=_MANY_DEAD):
        since = f"last vacuumed at {row['vacuumed_at']:%Y-%m-%d %H:%M}Z" if row["vacuumed_at"] else "never vacuumed"
        yield Finding(
            "vacuum_behind",
            f"{row['name']} holds {row['dead']:,} dead rows beside {row['live']:,} live ones, {since}.",
            f"Run: VACUUM relevo.{row['name']}; if they stay, something below keeps them.",
        )


def _held_back(database: Database) -> Iterator[Finding]:
    for row in fetch(database, _SQL["list_old_snapshots"], seconds=_LONG_S):
        yield Finding(
            "snapshot_old",
            f"{row['program']} (process {row['pid']}, {row['state']}) has had a transaction open for "
            f"{in_words(row['seconds'])}, which keeps dead rows in every table.",
            f"End it there, or: SELECT pg_terminate_backend({row['pid']}).",
        )
    for row in fetch(database, _SQL["list_old_prepared"], seconds=_LONG_S):
        yield Finding(
            "prepared_old",
            f"The prepared transaction {row['gid']} has been waiting for {in_words(row['seconds'])}, "
            "and keeps dead rows and locks.",
            f"COMMIT PREPARED '{row['gid']}', or ROLLBACK PREPARED it.",
        )
    for row in fetch(database, _SQL["list_stale_slots"], bytes=_MUCH_LOG):
        keeps = "dead rows" if row["keeps_rows"] else f"{row['bytes'] / 1e9:.1f} GB of the log"
        yield Finding(
            "slot_stale",
            f"Nobody reads the replication slot {row['slot_name']}, which keeps {keeps}.",
            f"Start its reader, or: SELECT pg_drop_replication_slot('{row['slot_name']}').",
        )


def _switched_off(database: Database) -> Iterator[Finding]:
    """Name each pause switch once, whether anything waits for it or not."""
    for row in fetch(database, _SQL["list_paused"]):
        yield _warning(
            "cycle_paused",
            f"{row['name']} has been paused for {in_words(row['seconds'])}: {row['reason'].removesuffix('.')}.",
            f"`relevo resume {row['name']}` switches it on; `relevo audit --action pause` shows who paused it.",
        )


def _held_up(database: Database) -> Iterator[Finding]:
    """Name projects and events that are not sent until something is mended, or somebody decides."""
    for row in fleet.projects(database):
        name, release = project_in_words(row["project"]), f"`relevo release {quote(row['project'])}`"
        if row["breaker"] != "closed":
            yield _warning(
                "project_stopped",
                f"Project {name} sends only probes: {row['breaker_reason'].removesuffix('.')}.",
                f"`relevo status` shows since when. Remove the cause, then {release} sends a probe at once.",
            )
        if row["pruning_stopped_at"] is not None:
            yield _warning(
                "tokens_unregistered",
                f"The push service reports so many tokens of project {name} as unregistered that Relevo disables none.",
                f"Check the project's push credentials, then run {release}.",
            )
    for row in fleet.failing_events(database)[:_NAMED]:
        yield _warning(
            "fanout_fails",
            f"The fan-out of event {row['id']} ({row['event_type']}) fails: {row['error']}",
            f"Remove the cause: Relevo tries again. `relevo cancel {row['id']}` ends the event.",
        )
    for row in fleet.held(database):
        yield _warning(
            "runaway_held",
            f"The runaway brake holds {in_numbers(row['events'], 'event')} of {row['event_type']}: {row['reason']}.",
            f"`relevo release --type {quote(row['event_type'])}` sends the held events; --drop discards them.",
        )


def _webhooks(database: Database, webhook_trouble: Callable[[str], str]) -> Iterator[Finding]:
    for row in fetch(database, _SQL["list_webhooks"]):
        if trouble := webhook_trouble(row["webhook"]):
            yield _warning(
                "webhook_unknown",
                f"News for {row['name']} cannot be sent: {trouble}.",
                "Correct the file where the workers run (they read a changed file again), or `relevo news subscribe "
                f"{quote(row['name'])}` with another --webhook.",
            )


def _quiet_hours(database: Database, settings: Settings) -> Iterator[Finding]:
    """Name what wakes people in quiet hours that were set: no quiet channel on Android, phones without a time zone."""
    (row,) = fetch(database, _SQL["read_quiet_hours"], channel=bool(settings.push_quiet_channel))
    if row["rings"]:
        yield _warning(
            "quiet_channel_unset",
            quiet_channel.RINGS,
            quiet_channel.MEND,
        )
    if row["without_zone"]:
        yield _warning(
            "quiet_zone_unknown",
            f"{in_numbers(row['without_zone'], 'phone has', 'phones have')} quiet hours and no time zone: UTC applies.",
            "Register phones with `timezone`, or set a zone with the hours: relevo quiet set --owner … --zone …",
        )


def _credentials(troubles: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    for place, trouble in troubles:
        yield Finding(
            "credential_refused",
            f"{place}: {trouble.removesuffix('.')}.",
            "Correct it; workers read it again within a second. Other projects continue meanwhile.",
        )


def _store(store: ArchiveStore | None) -> Iterator[Finding]:
    if store is None:
        return
    try:
        store.listing("_archive.json")
    except (RelevoError, OSError) as error:
        said = error.message if isinstance(error, RelevoError) else normalise_error(error, 200)
        hint = getattr(error, "hint", "") or "Check ARCHIVE_BUCKET, ARCHIVE_ENDPOINT and the credentials."
        what = f"The archive's store {store.name} cannot be read: {said.removesuffix('.')}."
        yield Finding("store_unreachable", what, hint)


def _expo(address: str | None, settings: Settings) -> Iterator[Finding]:
    if address is None:
        return
    try:
        status = _status_of(address, settings)
        why = f"it answers {status}" if status >= _BROKEN else ""
    except requests.RequestException as error:
        why = type(error).__name__
    if why:
        yield Finding(
            "expo_unreachable",
            f"Expo cannot be reached at {address}: {why}.",
            "Check this machine's network (DNS, firewall, HTTPS_PROXY, PUSH_CA_FILE), and EXPO_BASE_URL.",
        )


def _status_of(address: str, settings: Settings) -> int:
    """Return the HTTP status that an address answers with, by a certificate that is known, or else by PUSH_CA_FILE."""
    proxy = settings.proxies.for_url(address)
    with requests.Session() as session:
        session.trust_env = False
        ask = partial(
            session.get,
            address,
            timeout=(settings.push_connect_timeout_ms / 1000, _ANSWER_S),
            proxies={"http": proxy, "https": proxy} if proxy else None,
            allow_redirects=False,
            stream=True,
        )
        try:
            return int(ask().status_code)
        except requests.exceptions.SSLError:
            if settings.push_ca_file is None:
                raise
            return int(ask(verify=str(settings.push_ca_file)).status_code)


def _tokens(refused: Iterable[str]) -> Iterator[Finding]:
    for place in refused:
        yield Finding(
            "token_refused",
            f"Expo refuses the access token in {place}.",
            "Make a new one in Expo's dashboard, and put it there.",
        )
