"""Answers in JSON, written by orjson."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson
from starlette.responses import Response

_KIND = (b"content-type", b"application/json")


class Json(Response):
    """A JSON answer; instants are RFC 3339, in UTC."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = status, None
        self.body = self.render(content)
        given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.raw_headers = [*given, (b"content-length", b"%d" % len(self.body)), _KIND]

    def render(self, content: Any) -> bytes:
        """Write the content."""
        return orjson.dumps(content, default=_plain, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


_MOST_WHOLE = 2**63


def _plain(value: Any) -> Any:
    """Write an amount as the number it is: whole ones to the last digit, so that they can be handed in again."""
    if isinstance(value, Decimal):
        return int(value) if value % 1 == 0 and abs(value) < _MOST_WHOLE else float(value)
    return str(value)
