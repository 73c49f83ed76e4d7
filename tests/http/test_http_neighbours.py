"""What one caller does wrong is its own: all others are served as before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from support.http_server import EVENT, Client, Served


def enqueue(client: Client, count: int) -> list[int]:
    """Hand in some events one after the other, and return the statuses of the answers."""
    return [client.post("/v1/events", EVENT | {"key": f"order-{n}"}).status_code for n in range(count)]


def test_a_refused_call_breaks_nothing_for_others(served: Served) -> None:
    """One anonymous registration that is refused costs no later event its place."""
    app = served.client("app")
    assert served.client().call("PUT", f"/v1/installations/{uuid4()}", json={}).status_code == 401
    assert enqueue(app, 20) == [201] * 20


def test_many_refused_calls_at_once_break_nothing_for_others(serve: Callable[..., Served]) -> None:
    """Anonymous reads that are refused on every connection of the pool cost no later event its place."""
    served = serve(http_rate_per_second=0, http_pool_size=8, database_max_connections=20)
    app, strangers = served.client("app"), [served.client() for _ in range(24)]

    def read(stranger: Client) -> int:
        return stranger.get(f"/v1/installations/{uuid4()}/preferences").status_code

    with ThreadPoolExecutor(24) as threads:
        for _ in range(3):
            assert list(threads.map(read, strangers)) == [401] * 24
            apps = [served.client("app") for _ in range(8)]
            found = threads.map(
                lambda each: [each.post("/v1/events", EVENT | {"key": uuid4().hex}).status_code for _ in range(6)],
                apps,
            )
            assert list(found) == [[201] * 6] * 8
    assert enqueue(app, 20) == [201] * 20
