"""How long a server asks to wait: the Retry-After header, read once for push services and sources alike.

urllib3's `Retry.parse_retry_after` reads neither fractions of a second nor dates by the server's own clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MOST_S = 86_400
"""A day: a push service that asks for more is asked again after that."""
_SECONDS = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)


def retry_after_ms(headers: Mapping[str, str], *, most_s: int = _MOST_S) -> int:
    """Return the wait in milliseconds, given in seconds or as a date by the server's own clock; 0 if there is none.

    `headers` find their names whatever their case.
    """
    said = (headers.get("retry-after") or "").strip()[:40]
    if _SECONDS.fullmatch(said):
        wait = float(said)
    elif then := _date(said):
        wait = (then - (_date(headers.get("date") or "") or datetime.now(UTC))).total_seconds()
    else:
        return 0
    return round(min(max(wait, 0), most_s) * 1_000)


def _date(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
