"""The program that judges a history of `make chaos`: it finds nothing in a good one, and each broken rule in a history that breaks it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.__main__ import _judge_broken, never_met
from support.optional_parts import find_part

pytestmark = pytest.mark.needs("node")

CHECKER = Path(__file__).parents[3] / "scripts" / "chaos" / "check.mjs"
History = dict[str, list[dict[str, Any]]]
GOOD: History = {
    "told": [
        {"what": "registered", "at": 1.0, "installation": "a", "owner": "o", "phone": "expo-1"},
        {"what": "enqueued", "at": 2.0, "event": 1, "key": "k1", "once": False},
        {"what": "enqueued", "at": 2.0, "event": 2, "key": "k2", "once": True},
        {"what": "enqueued", "at": 2.0, "event": 3, "key": "k3", "once": False, "owner": "o", "category": "offers"},
        {"what": "marked", "at": 3.0, "event": 1, "owner": "o"},
        {"what": "forgotten", "at": 4.0, "owner": "person-writer-0-1-"},
        {"what": "archived", "at": 1.0, "ids": [1, 2]},
        {"what": "news", "at": 5.0, "position": 1, "kind": "event.finished", "event": 1, "delivery": None},
        {"what": "news", "at": 5.0, "position": 2, "kind": "event.finished", "event": 2, "delivery": None},
        {"what": "news", "at": 5.0, "position": 3, "kind": "event.finished", "event": 3, "delivery": None},
        {"what": "reads", "at": 1.0, "installation": "a"},
        {"what": "enqueued", "at": 2.0, "event": 4, "key": "k4", "once": False, "topic": "tenders"},
        {"what": "news", "at": 5.0, "position": 4, "kind": "event.finished", "event": 4, "delivery": None},
        {"what": "quiet", "at": 100.0, "owner": "o", "until": 200.0},
        {"what": "quiet", "at": 160.0, "owner": "o", "until": 240.0},
        {"what": "quiet", "at": 245.0, "owner": "o", "until": 244.9},
        {"what": "enqueued", "at": 101.0, "event": 6, "key": "k6", "once": False, "owner": "o", "waits": True},
        {"what": "news", "at": 260.0, "position": 5, "kind": "event.finished", "event": 6, "delivery": None},
        {"what": "enqueued", "at": 301.0, "event": 99, "key": "gone", "once": False},
        {"what": "restored", "at": 305.0, "since": 300.0, "until": 304.0, "last_delivery": 16},
        {"what": "adopted", "at": 310.0},
        {"what": "restored", "at": 405.0, "since": 400.0, "until": 404.0, "last_delivery": 16, "under_workers": True},
        {"what": "enqueued", "at": 299.0, "event": 7, "key": "k7", "once": False, "topic": "tenders"},
        {"what": "cancelled", "at": 300.1, "event": 7},
        {"what": "news", "at": 320.0, "position": 6, "kind": "event.finished", "event": 7, "delivery": None},
    ],
    "received": [
        {"phone": "ExponentPushToken[expo-1]", "delivery": 11, "at": 3.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 11, "at": 5.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 12, "at": 3.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 13, "at": 3.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 15, "at": 60.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 16, "at": 250.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 12, "at": 302.0},
        {"phone": "ExponentPushToken[expo-2]", "delivery": 17, "at": 302.0},
        {"phone": "ExponentPushToken[expo-1]", "delivery": 11, "at": 401.0},
    ],
    "events": [
        {"id": 1, "event_type": "t", "event_key": "k1", "state": "fanned", "at_most_once": False},
        {"id": 2, "event_type": "t", "event_key": "k2", "state": "fanned", "at_most_once": True},
        {"id": 3, "event_type": "t", "event_key": "k3", "state": "fanned", "at_most_once": False},
        {"id": 4, "event_type": "t", "event_key": "k4", "state": "fanned", "at_most_once": False},
        {"id": 7, "event_type": "t", "event_key": "k7", "state": "cancelled", "at_most_once": False},
        {"id": 5, "event_type": "relevo.digest", "event_key": "d", "state": "fanned", "at_most_once": False},
        {"id": 6, "event_type": "t", "event_key": "k6", "state": "fanned", "at_most_once": False},
    ],
    "deliveries": [
        {"id": 11, "event": 1, "installation": "a", "provider": "expo", "status": "ok", "attempts": 2},
        {"id": 12, "event": 2, "installation": "a", "provider": "expo", "status": "ok", "attempts": 1},
        {"id": 13, "event": 3, "installation": "a", "provider": "expo", "status": "ok", "attempts": 1},
        {"id": 15, "event": 5, "installation": "a", "provider": "expo", "status": "ok", "attempts": 1},
        {"id": 16, "event": 6, "installation": "a", "provider": "expo", "status": "ok", "attempts": 1},
    ],
    "digests": [
        {"digest": 5, "delivery": "daily 08:00", "zone": "UTC", "closed_at": "t", "installation": "a", "items": [4]}
    ],
    "requests": [
        {"id": "r1", "claim": "c1", "project": "p", "at": 2.0, "answered_at": None, "outcome": None, "ids": [11]},
        {
            "id": "r2",
            "claim": "c2",
            "project": "p",
            "at": 3.0,
            "answered_at": "x",
            "outcome": "answered",
            "ids": [11, 12, 13],
        },
    ],
    "failed_attempts": [],
    "queue": [],
    "claims": [],
    "late_tickets": [],
    "counts": [{"event": event, "status": "ok", "deliveries": 1} for event in (1, 2, 3, 5, 6)],
    "runs": [{"id": 1, "cycle": "cleanup", "source": "", "slot_at": "s", "outcome": "ok"}],
    "steps": [
        {"delivery_id": 11, "status": "retryable", "is_journalled": True, "has_late": False},
        {"delivery_id": 11, "status": "sent", "is_journalled": False, "has_late": False},
    ],
    "dead_letters": [],
    "marks": [{"owner": "o", "event": 1, "is_read": True}],
    "incidents": [],
    "names": [{"table": "relevo.device_installations", "name": "person-writer-0-2-"}],
    "archived": [{"id": 1, "where": "a"}, {"id": 2, "where": "a"}],
}
SUMMARY = {"calm": True, "hits": {}, "rate_per_s": 10, "offers_a_week": 1}
MOVED = {"what": "moved", "at": 2.5, "installation": "a", "phone": "moved-1"}


def write(folder: Path, history: History, log: str = "", *, calm: bool = True) -> None:
    """Write a history as a run does."""
    (folder / "history").mkdir(parents=True)
    for name, lines in history.items():
        (folder / "history" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "history" / "summary.json").write_text(json.dumps(SUMMARY | {"calm": calm}))
    (folder / "replica-1.log").write_text(log)


BREACHES: dict[str, Callable[[History], object]] = {
    "acknowledged and lost": lambda h: h["told"].append({"what": "enqueued", "at": 9.0, "event": 1, "key": "other"}),
    "not over after calm": lambda h: h["events"][0].update(state="waiting"),
    "called sent, and its phone got nothing": lambda h: h["received"].pop(3),
    "doubled without an unseen answer": lambda h: h["requests"].pop(0),
    "at most once, and doubled": lambda h: h["received"].append(dict(h["received"][2], at=4.0)),
    "pushed after its cancel was acknowledged": lambda h: (
        h["told"].append({"what": "cancelled", "at": 2.5, "event": 2}),
    ),
    "pushed to a token that had moved": lambda h: (h["told"].append(MOVED), h["received"][2].update(at=40.0)),
    "in two places, or in none": lambda h: h["queue"].append({"id": 1, "ids": [11]}),
    "one phone twice in an event": lambda h: h["deliveries"].append(dict(h["deliveries"][0], id=11)),
    "counters that differ": lambda h: h["counts"][0].update(deliveries=2),
    "slots that were filled twice": lambda h: h["runs"].append(dict(h["runs"][0], id=2)),
    "written by a stale claim": lambda h: h["steps"][0].update(is_journalled=False),
    "pushed after its deadline": lambda h: (h["told"][1].update(deadline=3.5), h["received"][1].update(at=40.0)),
    "failed, and not among the dead letters": lambda h: (
        h["deliveries"][1].update(status="failed"),
        h["counts"][1].update(status="failed"),
    ),
    "rate above the bucket": lambda h: h["requests"].append(dict(h["requests"][1], id="r3", ids=list(range(100, 300)))),
    "more of a category than its cap": lambda h: h["told"][1].update(owner="o", category="offers"),
    "two digests of one time on a phone": lambda h: h["digests"].append(dict(h["digests"][0], digest=9, items=[])),
    "told twice, by digests or beside one": lambda h: h["digests"].append(
        dict(h["digests"][0], digest=9, closed_at="later")
    ),
    "told by no digest": lambda h: h["digests"].clear(),
    "pushed in quiet hours": lambda h: h["received"][5].update(at=165.0),
    "pushed from a restored database before it was adopted": lambda h: h["received"].append(
        dict(h["received"][0], at=308.0)
    ),
    "news missing, or numbered twice": lambda h: h["told"].pop(8),
    "marks of an inbox that were lost": lambda h: h["marks"][0].update(is_read=False),
    "archive rows missing or doubled": lambda h: h["archived"].append({"id": 2, "where": "b"}),
    "forgotten names found anywhere": lambda h: h["names"].append({"table": "t", "name": "person-writer-0-1-"}),
}


SECRETS = ["to ExponentPushToken[expo-1-and-more]", "Bearer relevo_app_abcdefghijklmnopqrstuvwx"]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the checker, asked once about all, says of each history by its name."""
    folder = tmp_path_factory.mktemp("histories")
    write(folder / "good", GOOD)
    write(folder / "restless", GOOD, calm=False)
    for n, line in enumerate(SECRETS):
        write(folder / f"secret {n}", GOOD, log=line)
    for rule, breach in BREACHES.items():
        history = copy.deepcopy(GOOD)
        breach(history)
        write(folder / rule, history)
    folders = sorted(folder.iterdir())
    command = [find_part("node"), str(CHECKER), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    told = done.stdout.split("FOLDER ")[1:]
    return {Path(each.partition("\n")[0]).name: each for each in told}


def test_a_good_history_passes(said: dict[str, str]) -> None:
    """A push that came twice beside a request whose answer nobody saw, and what a restore took back, break no rule."""
    assert "BROKEN" not in said["good"]
    assert said["good"].count("    ok  ") >= len(BREACHES)


@pytest.mark.parametrize("rule", BREACHES)
def test_a_broken_rule_is_found(rule: str, said: dict[str, str]) -> None:
    """A history in which a rule is broken fails, and the rule is named."""
    assert f"BROKEN  {rule}: " in said[rule]


@pytest.mark.parametrize("number", range(len(SECRETS)))
def test_a_secret_in_a_log_is_found(number: int, said: dict[str, str]) -> None:
    """A whole push token or an API token in a replica's log fails the run."""
    assert "BROKEN  secrets or whole tokens in logs: 1" in said[f"secret {number}"]


@pytest.mark.parametrize(("moved_at", "is_found"), [(2.5, True), (2.9, False)])
def test_a_move_is_judged_by_the_second(tmp_path: Path, moved_at: float, is_found: bool) -> None:
    """A push to the former token is a fault if its request was written down after the move, half a second being enough."""
    history = copy.deepcopy(GOOD)
    history["told"].append(dict(MOVED, at=moved_at))
    history["received"] = [
        row for row in history["received"] if row["delivery"] not in (11, 15, 16) and row["at"] < 300
    ]
    write(tmp_path, history)
    done = subprocess.run(
        [find_part("node"), str(CHECKER), str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ("BROKEN  pushed to a token that had moved" in done.stdout) is is_found


def test_a_rate_is_looked_at_over_longer_windows(tmp_path: Path) -> None:
    """What exceeds a rate a little, and for long, breaks the rule as well: a lease blurs a short window."""
    history = copy.deepcopy(GOOD)
    history["requests"] += [
        dict(history["requests"][1], id=f"r{n}", at=float(n), ids=list(range(1_000 + 14 * n, 1_014 + 14 * n)))
        for n in range(20, 60)
    ]
    write(tmp_path, history)
    command = [find_part("node"), str(CHECKER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "BROKEN  rate above the bucket" in done.stdout


def test_a_build_is_not_caught_by_a_run_without_rest() -> None:
    """A build without one of its rules that comes to no rest breaks what only holds after it: that proves nothing."""
    verdict = {"rules": {"not over after calm": 9}, "replay": {"ok": True}, "summary": {"calm": False}}
    assert _judge_broken("lock", verdict) == 1
    assert _judge_broken("lock", verdict | {"rules": {"rate above the bucket": 1}}) == 0


@pytest.mark.parametrize(("is_short", "unmet"), [(False, ["cuts"]), (True, [])])
def test_a_moment_that_was_never_met_is_named(
    is_short: bool, unmet: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that had time for a moment and never met it fails by it; one that was short by wish only names it."""
    assert never_met({"kills": 2, "cuts": 0}, is_short=is_short) == unmet
    assert "1 moment was never met" in capsys.readouterr().out


def test_a_run_that_does_not_come_to_rest_fails(said: dict[str, str]) -> None:
    """Without calm nothing is proven."""
    assert "BROKEN  calm was not reached" in said["restless"]


def test_every_rule_has_a_history_that_breaks_it(said: dict[str, str]) -> None:
    """A rule that is added without a history that breaks it is missed here."""
    rules = {line[8:].partition(":")[0] for line in said["good"].splitlines() if line.startswith("    ok  ")}
    assert rules - BREACHES.keys() == {"secrets or whole tokens in logs"}
