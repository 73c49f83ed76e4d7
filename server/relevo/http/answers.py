"""Answers in JSON, written by orjson."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson
from starlette.responses import Response


class Json(Response):
    """A JSON answer; instants are RFC 3339, in UTC."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status, headers)

    def render(self, content: Any) -> bytes:
        """Write the content."""
        return orjson.dumps(content, default=_plain, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return str(value)
