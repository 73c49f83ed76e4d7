"""After the database's clock was set back: let nothing wait the jump out."""

from __future__ import annotations

from collections import Counter

import structlog

from relevo import queries
from relevo.runtime.runs import Run

_SQL = queries.load("clock")
_log = structlog.get_logger("relevo.clock")
_BATCH = 1_000
_LONGEST_PAUSE_MS = 3_600_000  # a push service may ask for that long
_REBASED = (  # those first that others wait for
    "claims",
    "leases",
    "connections",
    "workers",
    "projects",
    "quotas",
    "events",
    "fan_outs",
    "chunks",
    "receipts",
)


def rebase(run: Run) -> Counter[str]:
    """Bring times that lie further ahead than they could to now, if the clock was set back; tell how many, per kind.

    Every replica may do it, before the fleet's next turn is taken: what one does not come to, the next finds.
    """
    rebased: Counter[str] = Counter()
    with run.transaction() as connection:
        if connection.execute(_SQL["was_set_back"], {"now": run.now}).fetchone() != (True,):
            return rebased
    for kind in _REBASED:
        rebased[kind] = _rebase(run, kind)
    with run.transaction() as connection:
        connection.execute(_SQL["wake_up"])
    _log.warning("clock_set_back", **rebased)
    return rebased


def _rebase(run: Run, kind: str) -> int:
    """Go on until a batch is short."""
    settings, total, changed = run.settings, 0, _BATCH
    longest_ms = max(settings.outbox_retry_max_ms + settings.outbox_retry_jitter_ms, _LONGEST_PAUSE_MS)
    asked = {
        "now": run.now,
        "limit": _BATCH,
        "lease_ms": settings.outbox_lease_duration_ms,
        "longest_ms": max(longest_ms, settings.receipt_give_up_ms) if kind == "receipts" else longest_ms,
    }
    while changed >= _BATCH and run.may_go_on():
        with run.transaction() as connection:
            changed = connection.execute(_SQL[f"rebase_{kind}"], asked).rowcount
        total += changed
    return total
