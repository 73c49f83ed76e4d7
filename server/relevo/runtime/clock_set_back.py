"""After the database's clock was set back: let nothing wait the jump out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import structlog

from relevo.config import RECEIPT_GIVE_UP_MS
from relevo.core import queries
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing

_SQL = queries.load("clock_set_back")
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


@dataclass
class Rebased:
    """The corrections after the clock was set back."""

    counts: Counter[str] = field(default_factory=Counter)
    was_set_back: bool = False
    is_complete: bool = True
    """Whether the fleet's next turn may be taken: it tells that nothing is left to do."""


def rebase(run: Run) -> Rebased:
    """Bring times that lie further ahead than they could to now, if the clock was set back; return how many, per kind.

    Every replica may do it, before the fleet's next turn is taken: what one does not come to, the next finds. A kind
    that cannot be written keeps no other waiting, and is tried again with the next round.
    """
    if run.execute(_SQL["was_set_back"], {"now": run.now}).fetchone() != (True,):
        return Rebased()
    done = Rebased(was_set_back=True, is_complete=False)
    for kind in _REBASED:
        with run.contain(Thing("part", f"reaper rebase_{kind}")):
            done.counts[kind] = _rebase(run, kind)
    run.execute(_SQL["wake_up"])
    done.is_complete = run.may_go_on() and len(done.counts) == len(_REBASED)
    _log.warning("clock_set_back", **done.counts)
    return done


def _rebase(run: Run, kind: str) -> int:
    """Go on until a batch is short."""
    settings, total, changed = run.settings, 0, _BATCH
    longest_ms = max(settings.outbox_retry_max_ms + settings.outbox_retry_jitter_ms, _LONGEST_PAUSE_MS)
    asked = {
        "now": run.now,
        "limit": _BATCH,
        "lease_ms": settings.outbox_lease_duration_ms,
        "longest_ms": max(longest_ms, RECEIPT_GIVE_UP_MS) if kind == "receipts" else longest_ms,
    }
    while changed >= _BATCH and run.may_go_on():
        changed = run.execute(_SQL[f"rebase_{kind}"], asked).rowcount
        total += changed
    return total
