"""No alert fires while the demo runs: each rule is evaluated on what the demo tells, scrape by scrape.

Of a counter that is what it has counted since the demo began, in place of a rate.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import promql, soak
from support.http_server import free_port
from support.processes import PATIENCE_S, Process, Processes, eventually, never

ALERTS_FILE = Path(__file__).parents[3] / "scripts" / "deploy" / "alerts.yml"
RULES = yaml.safe_load(ALERTS_FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]
WATCHED_S = soak.cases(20.0, whole=3_600.0)
"""For how long the demo is watched: `make soak` watches it for an hour."""
SCRAPED_EVERY_S = 15.0 if soak.WHOLE else 1.0
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[Process, int]]:
    """Run the demo in a folder of its own, and return it with the port of its metrics."""
    started, port = Processes("", tmp_path), free_port()
    own = {"database_url": "", "expo_base_url": "", "relevo_data_dir": tmp_path / "data", "metrics_port": port}
    yield started.relevo("run", relevo_demo="true", http_enabled=True, **own), port
    started.close()


def holding(port: int) -> list[str]:
    """Return the alerts whose expression holds for one scrape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        samples = promql.samples_of(answer.read().decode())
    return [rule["alert"] for rule in RULES if promql.evaluate(rule["expr"], samples)]


def patience_s(rule: dict[str, str]) -> float:
    """Return for how long an expression must hold until its alert fires."""
    number, unit = re.fullmatch(r"(\d+)([smh])", rule["for"]).groups()  # type: ignore[union-attr]
    return int(number) * _UNIT_S[unit]


@pytest.mark.timeout(soak.cases(600, whole=4_500))
def test_none_fires(demo: tuple[Process, int]) -> None:
    """From its first pushes on, no expression of an alert holds for as long as the alert waits."""
    process, port = demo
    process.hears("worker_started")
    eventually(lambda: [line for line in process.lines("run_finished", cycle="receipt") if line["counts"]], "it works")
    since: dict[str, float] = {}

    def firing() -> list[str]:
        now, held = time.monotonic(), set(holding(port))
        for rule in RULES:
            if rule["alert"] not in held:
                since.pop(rule["alert"], None)
        return [
            rule["alert"]
            for rule in RULES
            if rule["alert"] in held and now - since.setdefault(rule["alert"], now) >= patience_s(rule)
        ]

    never(firing, "an alert fires", during=WATCHED_S, every=SCRAPED_EVERY_S)
