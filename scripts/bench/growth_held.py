"""The cost of looks as dead rows grow: an open snapshot keeps the rows of everything that is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import uuid4

import psycopg

from bench.environment import statements
from bench.snapshot import held_snapshot
from relevo.core import queries
from relevo.database.pool import Manner

_SQL = statements(__file__.replace("growth_held", "growth"))
_FANOUT, _REAPER = queries.load("fanout"), queries.load("reaper")
_EVENTS_OF_ONE_PHONE = 0.1  # of a size: from the thousand on that a claim reads at most


class Ask(Protocol):
    """Measures statements of a step, whose work is undone."""

    def __call__(self, name: str, step: str, names: tuple[str, ...], asked: dict[str, Any], manner: Manner) -> None:
        """Measure them under a name."""


def measure(conn: psycopg.Connection[Any], dsn: str, size: int, waiting: Sequence[int], ask: Ask) -> None:
    """Measure each look beside as many dead rows as the size, with the bounds that a worker reads."""
    looking: dict[str, Any] = {
        "after_project": "", "given_up": list(waiting), "apart": [], "aside": [], "few": 100, "most_events": 1,
        "most": 500, "brake": True, "enough": 100, "at_once": False, "now": None,
    }  # fmt: skip
    with held_snapshot(dsn):
        conn.execute(_SQL["fan_out_under"], {"to": size})
        conn.execute(_SQL["note_fanned_under"])
        since, due_since = _read(conn, _FANOUT["find_first_turn"])
        bound = {"since": since, "due_since": due_since}
        ask("fan-out's look under a snapshot", "fanout", ("fan_out_next",), looking | bound, "bound_relaxed")
        conn.execute(_SQL["end_under"])
        conn.execute(_SQL["sweep_under"])
        ended = {"now": None, "looks_since": None, "ended_since": _read(conn, _FANOUT["find_first_ended"])[0]}
        ask("sweep's look under a snapshot", "fanout", ("look_beside", "pick_ended_event"), ended, "bound_relaxed")
        conn.execute(_SQL["change_under"], {"many": size})
        (last,) = _read(conn, _SQL["fold_under"])
        conn.execute(_SQL["change_under"], {"many": 10})
        folding = {"limit": 10_000, "after": last, "left_out": "{}"}
        ask("ten changes folded under a snapshot", "reaper", ("fold_progress",), folding, "bound_transaction")
        conn.execute(_SQL["claim_under"], {"to": size})
        conn.execute(_SQL["settle_under"])
        expired = {"now": None, "given_up": [], "since": _read(conn, _REAPER["find_first_claim"])[0]}
        name = "a look for expired claims under a snapshot"
        ask(name, "reaper", ("pick_expired_claim",), expired, "bound_by_key")
    conn.execute(_SQL["queue_collapsing"], {"to": size, "many": round(size * _EVENTS_OF_ONE_PHONE)})
    claiming = {
        "worker_id": "growth", "cycle": "dispatch", "project": "collapsing", "lane": "bulk", "limit": 10, "now": None,
        "shard_index": None, "shard_count": None, "only_types": None, "not_types": None, "not_worded": None,
        "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000, "token": uuid4(),
    }  # fmt: skip
    name = "a claim of ten of one phone's collapse events"
    ask(name, "claims", ("claim_due",), claiming, "bound_by_key")


def _read(conn: psycopg.Connection[Any], statement: bytes) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(statement).fetchone()
    assert row is not None
    return row
