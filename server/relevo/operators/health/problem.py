"""A problem: what is wrong and what to do about it, in a sentence with a code; and what it is judged by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from relevo.core.phrases import Phrase

Row = Mapping[str, Any]
SLACK_S = 20.0
USUAL = 6.0
RUNBOOK = {
    "database_copied": "this-database-looks-like-a-copy",
    "instance_differs": "relevo_instance-differs-from-that-of-the-workers",
    "worker_rests": "a-worker-rests",
    "worker_silent": "worker-has-not-been-seen",
    "worker_lost": "worker-has-not-been-seen",
    "call_hung": "something-has-hung",
    "clock_wrong": "a-machines-clock-is-wrong",
    "disk_full": "a-disk-is-full",
    "service_unreachable": "a-worker-cannot-reach-a-push-service",
    "credential_unusable": "a-credential-cannot-be-used",
    "http_not_served": "http-cannot-be-served",
    "no_worker": "no-worker-is-running",
    "no_reaper": "no-reaper-has-ever-run",
    "cycle_failed": "a-cycle-has-failed",
    "cycle_missed_slot": "a-cycle-missed-its-slot",
    "cycle_quiet": "a-cycle-has-made-no-round",
    "news_dropped": "news-dropped-unread",
    "webhook_unreachable": "a-webhook-may-get-nothing",
    "news_refused": "news-cannot-be-sent-to-a-webhook",
    "news_not_taken": "your-server-takes-no-news",
    "cycle_paused": "paused-and-something-waits",
    "claim_expired": "an-expired-claim-waits-for-a-reaper",
    "left_alone": "one-thing-fails-while-the-rest-continues",
    "deliveries_late": "deliveries-are-late",
    "source_problem": "a-source-reports-a-problem",
    "rejects_given_up": "rejects-were-given-up",
    "source_unread": "a-source-has-not-been-read",
    "source_without_news": "a-source-has-nothing-new",
    "requests_failing": "requests-fail-in-a-row",
    "project_stopped": "a-project-sends-only-probes",
    "project_rests": "a-project-rests",
    "tokens_unregistered": "too-many-unregistered-tokens",
    "fanout_fails": "the-fan-out-of-an-event-fails",
    "runaway_held": "held-as-a-runaway",
    "texts_not_rendered": "events-wait-for-their-texts",
    "month_not_archived": "a-month-is-not-archived",
}
"""Where the runbook explains each problem, by its code: a heading's anchor."""


@dataclass(frozen=True)
class Observed:
    """The facts by which health is judged."""

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
    """Things that are left alone after an error while the rest goes on."""


class Problem(Phrase):
    """A sentence that says what is wrong and what to do, with a code that stays the same however it is said."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, template: str, /, **parts: object) -> Self:
        """Make a problem of its code and its sentence."""
        problem = super().__new__(cls, template, **parts)
        problem.code = code
        return problem

    @property
    def place(self) -> str:
        """Return the anchor under which the runbook explains it."""
        return RUNBOOK[self.code]


_WHY = re.compile(r": (?=\{(?:why|error|reason)\})")
_WHY_APART = re.compile(r" \((\{(?:why|reason)\}[^()]*)\)")
_APART = re.compile(r"\([^()]*\)")


def in_three(template: str) -> tuple[str, str, str]:
    """Split a problem's sentence into what is wrong, why, and what to do, as far as each is there.

    It reads `what: {why}; what to do`, or `what ({why}) and more; what to do`.
    """
    plain = _APART.sub(lambda found: "_" * len(found[0]), template)
    why = _WHY.search(plain)
    end = plain.find("; ", why.end()) if why else plain.rfind("; ")
    end = len(template) if end < 0 else end
    remedy = template[end + 2 :]
    if why:
        return template[: why.start()], template[why.end() : end], remedy
    apart = _WHY_APART.search(template[:end])
    return _WHY_APART.sub("", template[:end], count=1), apart[1] if apart else "", remedy
