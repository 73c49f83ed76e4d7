"""Each address takes the methods it has routes for; any other is a 405 that names exactly those."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle
from uuid import UUID

from relevo.http.rules import RULES
from support.http_server import Served

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
FILLED = {"event_id": "1", "licitacion_id": "1", "installation_id": str(UUID(int=1)), "name": "reaper"}


def filled(path: str) -> str:
    """Return an address of a route."""
    return re.sub(r"{(\w+)(:path)?}", lambda found: FILLED.get(found[1], "x"), path)


def test_every_address_names_the_methods_it_takes(serve: Callable[..., Served]) -> None:
    """All routes by all methods, an operator and a stranger taking turns: 405 where there is no route, and only there."""
    served = serve(http_rate_per_second=0)
    callers = cycle([served.client("operator"), served.client()])
    for path in sorted({path for _, path in RULES}):
        takes = sorted(method for method, each in RULES if each == path)
        wrong = [method for method in METHODS if method not in takes]
        answers = [next(callers).call(method, filled(path)) for method in wrong]
        found = {(each.status_code, each.headers.get("allow")) for each in answers}
        assert found == {(405, ", ".join(takes))}, (path, [(each.request.method, each.text) for each in answers])
        told = {each.json()["detail"] for each in answers if each.request.method != "HEAD"}
        assert told == {f"This address takes {' or '.join(takes)}."}
