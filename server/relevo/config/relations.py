"""Which settings must fit together, and what is said where they do not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from relevo.config.settings import Settings

Complaints = dict[tuple[str, ...], str]
"""A fault, by the settings it is about; the first one is to be changed."""
_MAX_QUOTED = 100


class Limit(NamedTuple):
    """A number that must stay below, or at, a part of another."""

    name: str
    of: str
    part: int = 1
    may_equal: bool = False

    def holds(self, settings: Settings) -> bool:
        """Return whether the two settings fit together."""
        value, ceiling = getattr(settings, self.name) * self.part, getattr(settings, self.of)
        return bool(value <= ceiling if self.may_equal else value < ceiling)

    def complaint(self, settings: Settings) -> str:
        """Name the setting that is wrong, and a right value."""
        share = {1: "", 2: "half of ", 3: "a third of "}[self.part]
        bound = f"{'at most' if self.may_equal else 'less than'} {share}{self.of.upper()}"
        return f"must be {bound} ({getattr(settings, self.of)}), got {getattr(settings, self.name)}"


LIMITS = (
    Limit("outbox_lease_heartbeat_ms", "outbox_lease_duration_ms", 3),
    Limit("database_statement_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("database_lock_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("database_idle_transaction_timeout_ms", "outbox_lease_duration_ms", 3),
    Limit("push_request_timeout_ms", "outbox_lease_duration_ms", 2),
    Limit("worker_shutdown_timeout_ms", "outbox_lease_duration_ms", may_equal=True),
    Limit("reaper_interval_ms", "outbox_lease_duration_ms"),
    Limit("outbox_retry_base_ms", "outbox_retry_max_ms", may_equal=True),
    Limit("worker_idle_backoff_min_ms", "worker_idle_backoff_max_ms", may_equal=True),
    Limit("worker_tick_runner_max_ms", "worker_tick_overall_max_ms", may_equal=True),
)


def complaints(settings: Settings, cycles: Callable[[], Collection[str]]) -> Complaints:
    """Return all that does not fit together; `cycles` names the only ones there are, if it names any."""
    return {
        **{(each.name, each.of): each.complaint(settings) for each in LIMITS if not each.holds(settings)},
        **_of_shards(settings),
        **_of_sources(settings),
        **_of_places(settings),
        **_of_sign_on(settings),
        **_of_cycles(settings, cycles),
    }


def _of_shards(settings: Settings) -> Complaints:
    index, count = settings.worker_tick_shard_index, settings.worker_tick_shard_count
    shard = ("worker_tick_shard_index", "worker_tick_shard_count")
    found: Complaints = {}
    if index is None and count is not None:
        found[shard] = f"must be set along with WORKER_TICK_SHARD_COUNT ({count})"
    if index is not None and count is None:
        found[shard[::-1]] = f"must be set along with WORKER_TICK_SHARD_INDEX ({index})"
    if index is not None and count is not None and index >= count:
        found[shard] = f"must be less than WORKER_TICK_SHARD_COUNT ({count}), got {index}"
    return found


def _of_sources(settings: Settings) -> Complaints:
    named, web = settings.sources, "chilecompra-web"
    found: Complaints = {}
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


def _of_places(settings: Settings) -> Complaints:
    found: Complaints = {}
    if settings.database_direct_url and not settings.database_url:
        found["database_url", "database_direct_url"] = "must be set along with DATABASE_DIRECT_URL"
    if settings.database_read_url and not settings.database_url:
        found["database_url", "database_read_url"] = "must be set along with DATABASE_READ_URL"
    if settings.push_projects_file and settings.push_projects:
        found["push_projects", "push_projects_file"] = "must not be set along with PUSH_PROJECTS_FILE"
    if settings.archive_bucket and settings.archive_folder:
        found["archive_folder", "archive_bucket"] = (
            f"must not be set along with ARCHIVE_BUCKET ({settings.archive_bucket})"
        )
    if settings.archive_endpoint and not settings.archive_bucket:
        found["archive_bucket", "archive_endpoint"] = "must be set along with ARCHIVE_ENDPOINT"
    if settings.archive_sse_kms_key_id and settings.archive_sse != "aws:kms":
        found["archive_sse", "archive_sse_kms_key_id"] = "must be aws:kms along with ARCHIVE_SSE_KMS_KEY_ID"
    return found


def _of_sign_on(settings: Settings) -> Complaints:
    if settings.oidc_issuer is None:
        return {}
    needed = ("oidc_client_id", "oidc_redirect_url", "oidc_roles")
    return {
        (name, "oidc_issuer"): "must be set along with OIDC_ISSUER"
        for name in needed
        if getattr(settings, name) is None
    }


def _of_cycles(settings: Settings, cycles: Callable[[], Collection[str]]) -> Complaints:
    found: Complaints = {}
    chosen = {name: getattr(settings, name) or () for name in ("worker_cycles", "worker_tick_runners")}
    known = cycles() if any(chosen.values()) else ()
    for setting, names in chosen.items():
        unknown = [name for name in names if name.partition(":")[0] not in known]
        if known and unknown:
            found[setting,] = f"must name cycles out of {', '.join(known)}, got {unknown[0][:_MAX_QUOTED]!r}"
    return found
