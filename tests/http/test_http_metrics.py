"""/metrics: for viewers on the API's port, for everybody on a port of its own, with how long our answers took."""

from __future__ import annotations

import socket
from collections.abc import Callable

import requests

from support.http_server import Served
from support.processes import eventually


def test_metrics_ask_for_a_token_or_have_a_port_of_their_own(serve: Callable[..., Served]) -> None:
    """A viewer sees counters and the fleet's gauges, a stranger on METRICS_PORT the same, and on the API's port nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = serve(metrics_port=port)
    assert served.client().get("/metrics").status_code == 401
    assert served.client().call("PURGE", "/metrics").status_code == 405
    told = served.client("viewer").get("/metrics")
    assert (told.status_code, told.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'relevo_workers{state="alive"} 1.0' in told.text
    counted = 'relevo_http_request_duration_seconds_count{method="GET",route="/metrics",status="200"} 1.0'
    refused = 'relevo_http_request_duration_seconds_count{method="GET",route="/metrics",status="401"} 1.0'
    assert refused in told.text
    assert 'method="OTHER"' in told.text
    assert "PURGE" not in told.text
    eventually(lambda: counted in requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text, "it is counted")
