"""Workers: which cycles run where, how often, and the pauses between runs; ticks."""

from __future__ import annotations

from typing import Annotated

from relevo.config.kinds import Cron, Name, Names, Timezone
from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Theme, between, ceiling, everyday, expert, of_lease, tuning


class Workers(Theme):
    """Workers, ticks and schedules."""

    worker_cycles: Names | None = everyday("The cycles of this replica (comma-separated). Default: all.")
    worker_timezone: Timezone = everyday(
        "The time zone of cron expressions. A local time that the clock skips runs after the skip; one that "
        "occurs twice runs once.",
        "America/Santiago",
    )
    outbox_worker_enabled: bool = tuning("Whether Relevo starts cycles at all, by schedule, by tick or by hand.", True)
    worker_id: Name | None = tuning("This replica's name, unique in the fleet. By default each start makes a new one.")
    worker_event_types: Names | None = tuning(
        "The event types that this replica sends (comma-separated). Default: all."
    )
    worker_shutdown_timeout_ms: Annotated[int, between(0, HOUR)] = tuning(
        "How long running work may continue after a request to stop.", of_lease(30 * SECOND, 1)
    )
    cleanup_cron: Cron = tuning("When the nightly cleanup runs.", "17 3 * * *")
    archive_export_cron: Cron = tuning("When retired months are exported.", "47 3 * * *")
    dispatch_interval_minutes: Annotated[int, between(1, 60)] = expert(
        "The longest interval between two runs of fan-out and of dispatch; new events and deliveries wake both.",
        1,
    )
    digest_interval_minutes: Annotated[int, between(1, 60)] = expert(
        "How often Relevo looks for digests that are due.", 1
    )
    receipt_interval_minutes: Annotated[int, between(1, 60)] = expert("How often Relevo fetches receipts.", 1)
    reaper_interval_ms: Annotated[int, between(10, HOUR)] = expert(
        "How often the reaper takes back expired claims.", of_lease(10 * SECOND, 2)
    )
    fanout_slice_size: Annotated[int, between(1, 100_000)] = expert(
        "Candidate phones of one slice of a fan-out; a slice commits at once.", 10_000
    )
    worker_busy_loop_delay_ms: Annotated[int, between(0, 10 * MINUTE)] = expert(
        "The pause after a run that found work. After a run of fan-out or dispatch that left no work: ten times "
        "its duration, if that is less.",
        250,
    )
    worker_stay_ms: Annotated[int, between(0, MINUTE)] = expert(
        "How long a run of fan-out or dispatch that found work waits for more before it ends: at most a lease, "
        "and not at all while the worker hears no wake-ups.",
        SECOND,
    )
    worker_idle_backoff_max_ms: Annotated[int, between(1, HOUR)] = expert(
        "The longest pause after runs that found nothing.", 30 * SECOND
    )
    worker_idle_backoff_min_ms: Annotated[int, between(1, HOUR)] = expert(
        "The pause after the first run that found nothing; it doubles for each further run.",
        ceiling(SECOND, "worker_idle_backoff_max_ms"),
    )
    worker_idle_backoff_jitter_ms: Annotated[int, between(0, 10 * MINUTE)] = expert(
        "The most that Relevo adds at random to each pause.", 500
    )
    worker_tick_loop_error_backoff_ms: Annotated[int, between(0, HOUR)] = expert(
        "The pause after a run that failed.", 30 * SECOND
    )
    worker_tick_loop_max_jitter_ms: Annotated[int, between(0, 10 * MINUTE)] = expert(
        "The most that Relevo adds at random to the pause after a run that failed.", 2 * SECOND
    )
    worker_tick_runners: Names | None = tuning(
        "The cycles of `relevo tick`, in this order (comma-separated). Default: all of Relevo's own."
    )
    worker_tick_overall_max_ms: Annotated[int, between(1, DAY)] = tuning("The longest tick.", 480_000)
    worker_tick_runner_max_ms: Annotated[int, between(1, DAY)] = tuning(
        "The longest run of a cycle in a tick.", ceiling(MINUTE, "worker_tick_overall_max_ms")
    )
    worker_tick_runner_max_items: Annotated[int, between(1, 1_000_000_000)] = tuning(
        "The most items of a cycle in a tick.", 100_000
    )
    worker_tick_shard_count: Annotated[int | None, between(1, 10_000)] = expert(
        "Into how many shards ticks divide the deliveries."
    )
    worker_tick_shard_index: Annotated[int | None, between(0, 9_999)] = expert(
        "Which shard this tick processes, from 0."
    )
