"""News back to the app: what came of its events, deliveries and phones, shared out to whoever subscribed to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

from relevo.core import queries
from relevo.database.arrays import array
from relevo.runtime.halving import in_batches, put_behind
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing

_SQL = queries.load("news")
_log = structlog.get_logger("relevo.news")
_BATCH = 5_000
_BOUNDS = {"limit": 500, "most_open": 1_000}
"""How many are sent on their way at once, and may wait to be sent to one webhook; the others stay in the backlog."""


def distribute_news(run: Run) -> Counter[str]:
    """Share out what is new, send it on its way to webhooks, and forget what was dealt with, is old, or too much."""
    if run.execute(_SQL["is_anything_to_tell"]).fetchone() != (True,):
        return Counter()
    changed, news = (partial(put_behind, run, _SQL[put_off]) for put_off in ("put_off_event", "put_off_news"))
    in_batches(run, "news of events", partial(_note_finished, run), changed, limit=_BATCH)
    in_batches(run, "news", partial(_share_out, run), news, limit=_BATCH)
    counts = _send_to_webhooks(run)
    _until_short(run, _trim)
    return counts


def _until_short(run: Run, step: Callable[[Run], bool]) -> None:
    """Take batches, each in a transaction of its own, until one finds less than it could have taken."""
    while run.may_go_on() and step(run):
        pass


def _note_finished(run: Run, limit: int) -> int:
    with run.transaction("bound_by_key") as connection:
        taken = connection.execute(_SQL["take_changed_events"], {"limit": limit}).fetchall()
        if taken:
            changed = {"events": array({row[0] for row in taken}), "now": run.now}
            connection.execute(_SQL["tell_finished_events"], changed)
    return len(taken)


def _share_out(run: Run, limit: int) -> int:
    row = run.execute(_SQL["share_out_news"], {"limit": limit}).fetchone()
    return row[0] if row else 0


def _trim(run: Run) -> bool:
    kept = {
        "limit": _BATCH,
        "backlog": run.settings.news_backlog_limit,
        "retention_days": run.settings.news_retention_days,
        "now": run.now,
    }
    trimmed = run.execute(_SQL["trim_news"], kept).fetchall()
    for name, unread, _ in trimmed:
        if unread:
            _log.warning("news_dropped", subscription=name, news=unread)
    return any(more for _, _, more in trimmed)


def _send_to_webhooks(run: Run) -> Counter[str]:
    """Make events of news, subscription by subscription; one whose news cannot be sent does not hold up the others."""
    names = [row[0] for row in run.execute(_SQL["list_webhooks"]).fetchall()]
    counts: Counter[str] = Counter()
    resting = run.resting("subscription")
    for name in names:
        if name in resting:
            continue
        with run.contain(Thing("subscription", name)):
            while run.may_go_on() and (sent := _send_some(run, name)):
                counts["news_sent"] += sent
    return counts


def _send_some(run: Run, name: str) -> int:
    """Enqueue a subscription's next news and move its cursor; return how many."""
    with run.transaction() as connection:
        webhook = connection.execute(_SQL["pick_webhook"], {"name": name}).fetchone()
        if webhook is None:  # paused or removed meanwhile, or another replica is at it
            return 0
        connection.execute(_SQL["register_webhook"], {"webhook": webhook[0]})
        target = connection.execute(_SQL["find_webhook"], {"webhook": webhook[0]}).fetchone()
        if target is None:
            _log.warning("webhook_not_reachable", subscription=name, webhook=webhook[0])
            return 0
        asked = {"name": name, "installation_id": target[0], "project": target[1]}
        row = connection.execute(_SQL["enqueue_news"], asked | _BOUNDS).fetchone()
    return row[0] if row else 0
