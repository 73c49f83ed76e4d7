"""What FCM, APNs and Web Push have in common: a connection for each calling thread, and tickets without an answer."""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from email.utils import parsedate_to_datetime

from relevo.core.logs import scrub
from relevo.core.model import Reply, Ticket
from relevo.providers.http2 import Http2Client, NotSent, Outcome, Unknown

MOST_PER_THREAD = 16
MAX_CODE, MAX_MESSAGE = 100, 500
MOST_SKEW_S = 60.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Http2Clients:
    """Clients by key, each owned by the thread that asked for it; the one used longest ago makes room."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[Http2Client] = weakref.WeakSet()

    def get(self, key: Hashable, make: Callable[[], Http2Client]) -> Http2Client:
        """Return the calling thread's client of a key."""
        clients: OrderedDict[Hashable, Http2Client] = self._mine.__dict__.setdefault("clients", OrderedDict())
        if key not in clients:
            if len(clients) >= MOST_PER_THREAD:
                clients.popitem(last=False)[1].close()
            clients[key] = make()
            with self._lock:
                self._all.add(clients[key])
        clients.move_to_end(key)
        return clients[key]

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        with self._lock:
            for client in self._all:
                client.close()


def clean(text: object, limit: int = MAX_MESSAGE) -> str | None:
    """Return a push service's words in one line that fits, without what is secret in it."""
    if not isinstance(text, str) or not text:
        return None
    return scrub(_CONTROL.sub(" ", text[: 2 * limit]).encode("utf-8", "replace").decode())[:limit]


def clock_trouble(date: str | None, now: float) -> str:
    """Return in words by how much this machine's clock differs from a push service's, if that is too much."""
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return ""
    skew_s = abs(now - there)
    return f"this machine's clock differs from its own by {skew_s:.0f} seconds" if skew_s > MOST_SKEW_S else ""


def whole(outcomes: Sequence[Outcome]) -> Reply | None:
    """Return the reply to a request of which nothing was begun, for the same reason; None if something was."""
    first = outcomes[0]
    if not isinstance(first, NotSent) or any(not isinstance(each, NotSent) for each in outcomes):
        return None
    return Reply("not_sent", code=first.code[:MAX_CODE], message=first.message[:MAX_MESSAGE])


def unanswered(outcome: NotSent | Unknown, retry_after_ms: int = 0) -> Ticket:
    """Return the ticket of a message without an answer."""
    fate, pause_ms = ("not_sent", 0) if isinstance(outcome, NotSent) else ("unclear", retry_after_ms)
    return Ticket(
        fate,  # type: ignore[arg-type]
        code=outcome.code[:MAX_CODE],
        message=outcome.message[:MAX_MESSAGE],
        retry_after_ms=pause_ms,
    )
