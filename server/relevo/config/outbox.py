"""The outbox: claims, attempts and retries of deliveries."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Theme, ceiling, expert, of_lease, tuning

PUSH_CONNECTIONS = 6
"""How many requests at once a push service bears for one project."""


def _bearable(connections: int) -> int:
    return min(connections, PUSH_CONNECTIONS)


class Outbox(Theme):
    """Claims, attempts and retries."""

    outbox_max_attempts: int = tuning("How often a delivery is tried before it ends as failed.", 9, 1, 100)
    outbox_retry_max_ms: int = tuning("The longest wait between two attempts, in milliseconds.", HOUR, 1, 7 * DAY)
    outbox_retry_base_ms: int = tuning(
        "The wait before the second attempt, doubled for each one after it, in milliseconds.",
        ceiling(MINUTE, "outbox_retry_max_ms"),
        1,
        7 * DAY,
    )
    outbox_retry_jitter_ms: int = expert(
        "Up to this much is added to each wait between attempts, in milliseconds.", 500, 0, HOUR
    )
    outbox_batch_size: int = tuning("How many deliveries one claim takes at most.", 1_000, 1, 10_000)
    outbox_concurrency: Annotated[int, AfterValidator(_bearable)] = tuning(
        f"How many requests for one project may be under way at once, in the whole fleet; more than "
        f"{PUSH_CONNECTIONS}, which is what Expo bears, means {PUSH_CONNECTIONS}.",
        PUSH_CONNECTIONS,
        1,
        1_000,
    )
    outbox_lease_duration_ms: int = expert(
        "How long a claim is held without a heartbeat before others may take it over, in milliseconds.",
        MINUTE,
        300,
        HOUR,
    )
    outbox_lease_heartbeat_ms: int = expert(
        "How often a claim's lease is extended, in milliseconds.", of_lease(15 * SECOND, 4), 10, HOUR
    )
    outbox_poison_lapses: int = expert(
        "A delivery whose claim lapsed this often without being sent ends as failed.", 5, 2, 100
    )
