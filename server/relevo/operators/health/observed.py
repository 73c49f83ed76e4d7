"""What health is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from relevo.operators.health.problem import Row

SLACK_S = 20.0
USUAL = 6.0


@dataclass(frozen=True)
class Observed:
    """What health is judged by."""

    now: datetime
    workers: Sequence[Row]
    cycles: Sequence[Row]
    due: Sequence[Row]
    sources: Sequence[Row]
    projects: Sequence[Row]
    archive: Sequence[Row]
    held: Sequence[Row] = ()
    oldest_expired_s: float | None = None
    events_waiting: int = 0
    receipts_due: bool = False
    unworded: int = 0
    """How many events have waited for their texts for a minute or longer, up to a bound."""
    copied: str = ""
    """Why nothing may be sent from this database, if it belongs elsewhere."""
    misnamed: Mapping[str, str | None] = field(default_factory=dict)
    """RELEVO_INSTANCE here, that of a worker at work, and that worker, if all that differs is the name."""
    news: Sequence[Row] = ()
    failing: Sequence[Row] = ()
    """Events whose fan-out fails, those that failed most often first."""
    troubles: Sequence[Row] = ()
    """What is left alone after an error while the rest goes on."""
