"""The sender's CPU cost of a push: by the publish verb of exponent-server-sdk, and by our way past it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import requests
from exponent_server_sdk import PushClient, PushMessage

from bench.environment import Environment
from bench.measuring import Row
from relevo.providers.expo.provider import Expo

_CHUNK = 100
_TURNS = 5


def rows(env: Environment) -> Iterator[Row]:
    """Send the same messages both ways, in turns, and compare the CPU of this process."""
    to = [f"ExponentPushToken[sdk-{n}]" for n in range(_CHUNK)]
    shown = {"title": "On its way", "body": "Order 17 has left our house", "data": {"orderId": 17}}
    ours = Expo(base_url=env.url, access_token=None, timeout_ms=30_000, connect_timeout_ms=5_000)
    theirs = PushClient(host=env.url, api_url="/--/api/v2", session=_session(), timeout=30)
    written = [{"to": each, **shown} for each in to]
    objects = [PushMessage(to=each, **shown) for each in to]
    each = max(env.sizes.http_calls // _TURNS // 10, 1)
    by_ours, by_theirs = 0.0, 0.0
    for _ in range(_TURNS):
        by_ours += _cpu(lambda: ours.send(written), each)
        by_theirs += _cpu(lambda: theirs.publish_multiple(objects), each)
    ours.close()
    sent = _TURNS * each * _CHUNK / 1_000
    for name, what, spent in (
        ("ours", "our way through its client", by_ours),
        ("sdk", "its publish_multiple", by_theirs),
    ):
        ms = spent / sent * 1_000
        more = {"worker_ms": ms, "times_ours": by_theirs / by_ours}
        yield Row(f"sdk_{name}", f"1,000 pushes by Expo's SDK: {what}", f"{ms:,.1f} ms", None, more)


def _session() -> requests.Session:
    session = requests.Session()
    session.headers.update({"accept": "application/json", "content-type": "application/json"})
    return session


def _cpu(send: Callable[[], object], times: int) -> float:
    send()
    before = time.thread_time()
    for _ in range(times):
        send()
    return time.thread_time() - before
