"""The outbox: claims, attempts and retries of deliveries."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Theme, between, ceiling, expert, of_lease, tuning

PUSH_CONNECTIONS = 6
"""How many requests at once a push service bears for one project."""


def _bearable(connections: int) -> int:
    return min(connections, PUSH_CONNECTIONS)


class Outbox(Theme):
    """Claims, attempts and retries."""

    outbox_max_attempts: Annotated[int, between(1, 100)] = tuning("Attempts of a delivery before it ends as failed.", 9)
    outbox_retry_max_ms: Annotated[int, between(1, 7 * DAY)] = tuning("The longest wait between two attempts.", HOUR)
    outbox_retry_base_ms: Annotated[int, between(1, 7 * DAY)] = tuning(
        "The wait before the second attempt; it doubles for each further attempt.",
        ceiling(MINUTE, "outbox_retry_max_ms"),
    )
    outbox_retry_jitter_ms: Annotated[int, between(0, HOUR)] = expert(
        "The most that Relevo adds at random to each wait between attempts.", 500
    )
    outbox_batch_size: Annotated[int, between(1, 10_000)] = tuning("The most deliveries of one claim.", 1_000)
    outbox_concurrency: Annotated[int, between(1, 1_000), AfterValidator(_bearable)] = tuning(
        f"Requests for one project that may be active at once, in the whole fleet. Expo allows "
        f"{PUSH_CONNECTIONS}: a higher value means {PUSH_CONNECTIONS}.",
        PUSH_CONNECTIONS,
    )
    outbox_lease_duration_ms: Annotated[int, between(300, HOUR)] = expert(
        "How long a claim lasts without a heartbeat before the reaper may take it back.", MINUTE
    )
    outbox_lease_heartbeat_ms: Annotated[int, between(10, HOUR)] = expert(
        "How often a claim's lease is extended.", of_lease(15 * SECOND, 4)
    )
    outbox_poison_lapses: Annotated[int, between(2, 100)] = expert(
        "Expired claims without a push after which a delivery ends as failed.", 5
    )
