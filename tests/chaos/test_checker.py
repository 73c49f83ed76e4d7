"""The program that judges a history of `make chaos`: it finds nothing in a good one, and each broken rule in a history that breaks it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parts import find_part

pytestmark = pytest.mark.needs("node")

CHECKER = Path(__file__).parents[2] / "scripts" / "chaos" / "check.mjs"
History = dict[str, list[dict[str, Any]]]
GOOD: History = {
    "told": [
        {"what": "registered", "at": 1.0, "installation": "a", "owner": "o", "phone": "expo-1"},
        {"what": "enqueued", "at": 2.0, "event": 1, "key": "k1", "once": False},
        {"what": "enqueued", "at": 2.0, "event": 2, "key": "k2", "once": True},
    ],
    "received": [
        {"phone": "ExponentPushToken[expo-1]", "delivery": 11, "at": 3.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 11, "at": 5.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 12, "at": 3.0},
    ],
    "events": [
        {"id": 1, "event_type": "t", "event_key": "k1", "state": "fanned", "at_most_once": False},
        {"id": 2, "event_type": "t", "event_key": "k2", "state": "fanned", "at_most_once": True},
    ],
    "deliveries": [
        {"id": 11, "event": 1, "installation": "a", "provider": "expo", "status": "ok", "attempts": 2},
        {"id": 12, "event": 2, "installation": "a", "provider": "expo", "status": "ok", "attempts": 1},
    ],
    "requests": [
        {"id": "r1", "claim": "c1", "answered_at": None, "outcome": None, "ids": [11]},
        {"id": "r2", "claim": "c2", "answered_at": "later", "outcome": "answered", "ids": [11, 12]},
    ],
    "failed_attempts": [],
    "queue": [],
    "claims": [],
    "late_tickets": [],
    "counts": [{"event": 1, "status": "ok", "deliveries": 1}, {"event": 2, "status": "ok", "deliveries": 1}],
    "runs": [{"id": 1, "cycle": "cleanup", "source": "", "slot_at": "s", "outcome": "ok"}],
}
MOVED = {"what": "moved", "at": 2.5, "installation": "a", "phone": "moved-1"}


def judge(folder: Path, history: History, log: str = "", *, calm: bool = True) -> subprocess.CompletedProcess[str]:
    """Write a history, and ask the checker about it."""
    (folder / "history").mkdir()
    for name, lines in history.items():
        (folder / "history" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "history" / "summary.json").write_text(json.dumps({"calm": calm}))
    (folder / "replica-1.log").write_text(log)
    command = [find_part("node"), str(CHECKER), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_good_history_passes(tmp_path: Path) -> None:
    """A push that came twice beside a request whose answer nobody saw breaks no rule."""
    done = judge(tmp_path, GOOD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BROKEN" not in done.stdout


BREACHES: dict[str, Callable[[History], object]] = {
    "acknowledged and lost": lambda h: h["told"].append({"what": "enqueued", "at": 9.0, "event": 3}),
    "not over after calm": lambda h: h["events"][0].update(state="waiting"),
    "called sent, and its phone got nothing": lambda h: h["received"].pop(),
    "doubled without an unseen answer": lambda h: h["requests"].pop(0),
    "at most once, and doubled": lambda h: h["received"].append(dict(h["received"][2], at=4.0)),
    "pushed after its cancel was acknowledged": lambda h: (
        h["told"].append({"what": "cancelled", "at": 2.0, "event": 2}),
        h["received"][2].update(at=20.0),
    ),
    "pushed to a token that had moved": lambda h: (h["told"].append(MOVED), h["received"][2].update(at=20.0)),
    "in two places, or in none": lambda h: h["queue"].append({"id": 1, "ids": [11]}),
    "one phone twice in an event": lambda h: h["deliveries"].append(dict(h["deliveries"][0], id=11)),
    "counters that differ": lambda h: h["counts"][0].update(deliveries=2),
    "slots that were filled twice": lambda h: h["runs"].append(dict(h["runs"][0], id=2)),
}


@pytest.mark.parametrize("rule", BREACHES)
def test_a_broken_rule_is_found(rule: str, tmp_path: Path) -> None:
    """A history in which a rule is broken fails, and the rule is named."""
    history = copy.deepcopy(GOOD)
    BREACHES[rule](history)
    done = judge(tmp_path, history)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"BROKEN  {rule}: " in done.stdout


@pytest.mark.parametrize(
    "line", ["to ExponentPushToken[expo-1-and-more]", "Bearer relevo_app_abcdefghijklmnopqrstuvwx"]
)
def test_a_secret_in_a_log_is_found(line: str, tmp_path: Path) -> None:
    """A whole push token or an API token in a replica's log fails the run."""
    done = judge(tmp_path, GOOD, log=line)
    assert done.returncode == 1
    assert "BROKEN  secrets or whole tokens in logs: 1" in done.stdout


def test_a_run_that_does_not_come_to_rest_fails(tmp_path: Path) -> None:
    """Without calm nothing is proven."""
    assert judge(tmp_path, GOOD, calm=False).returncode == 1
