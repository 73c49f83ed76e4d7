"""Answers in JSON, written by orjson."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
from starlette.responses import Response

from relevo.core.hidden_texts import shown


class Json(Response):
    """A JSON answer; instants are RFC 3339, in UTC. It has no texts if they are hidden from the caller."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Write the content."""
        return orjson.dumps(shown(content), default=_plain, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


_MOST_WHOLE = 2**63


def _plain(value: Any) -> Any:
    """Write an amount as the number it is: whole ones to the last digit, so that they can be handed in again."""
    if isinstance(value, Decimal):
        return int(value) if value % 1 == 0 and abs(value) < _MOST_WHOLE else float(value)
    return str(value)
