"""The specifications of scripts/model: they hold, their broken twins do not, and a history they do not allow is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import model_replay

pytestmark = pytest.mark.needs("kits")

FIRST, SECOND = "a claim", "another claim"


def step(status: str = "pending", attempts: int = 0, **more: Any) -> dict[str, Any]:
    """Return a line of a delivery's history."""
    line = {"delivery_id": 1, "at_most_once": False, "max_attempts": 9, "status": status, "attempts": attempts}
    return line | {"place": None, "is_journalled": False, "has_late": False} | more


CLAIMED = [step(place="queue"), step(place=FIRST)]
JOURNALLED = [*CLAIMED, step(place=FIRST, is_journalled=True)]
WAITS = [*JOURNALLED, step("retryable", 1, place="queue")]
LOST = [*WAITS, step("retryable", 1, place=SECOND)]
LATE = step("retryable", 1, place=SECOND, has_late=True)

TWICE = [*LOST, step("retryable", 1, place=SECOND, is_journalled=True), step("sent", 2, taken=2)]


def test_the_product_holds_and_each_twin_breaks() -> None:
    """Each specification holds exhaustively for a small size, and each broken twin breaks the invariant it names."""
    done = model_replay.run_program("check.mjs", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    twins = len(list(model_replay.MODEL.glob("*.broken.cfg")))
    assert twins >= 8
    assert done.stdout.count("breaks") == twins


ALLOWED = {
    "sent once, as its phone says": [*JOURNALLED, step("sent", 1, taken=1)],
    "turned away": [*JOURNALLED, step(place="queue")],
    "sent again in doubt": TWICE,
    "a ticket that the journal did not see": [
        *LOST,
        LATE,
        step("retryable", 1, place=SECOND, is_journalled=True, has_late=True),
    ],
    "ended while its ticket came": [*LOST, LATE, step("expired", 1)],
    "closed by a late ticket": [*LOST, step("retryable", 1, place=SECOND, has_late=True), step("sent", 1)],
}


def test_histories_of_the_product_are_allowed(tmp_path: Path) -> None:
    """What the product does is a walk through the specification."""
    done = model_replay.replay([dict(line, test=name) for name, lines in ALLOWED.items() for line in lines], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deliveries"] == len(ALLOWED)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*CLAIMED, step("sent", 1)], id="sent without a request in the journal"),
        pytest.param([*LOST, step("sent", 2)], id="settled by who lost its claim"),
        pytest.param([*LOST, step(place="queue", attempts=0)], id="put back by who lost its claim"),
        pytest.param([*CLAIMED, step(place=SECOND)], id="in another claim at once"),
        pytest.param(
            [*JOURNALLED, step(place="queue", attempts=0, has_late=True)], id="late ticket of a claim that stands"
        ),
        pytest.param([dict(line, at_most_once=True) for line in TWICE], id="at most once, and pushed twice"),
        pytest.param([*JOURNALLED, step()], id="in no place at all"),
        pytest.param(
            [*WAITS, dict(LATE, place="queue"), LATE, dict(LATE, is_journalled=True)],
            id="journalled though its ticket was there before",
        ),
        pytest.param([*JOURNALLED, step("sent", 1, taken=2)], id="two pushes where one request was answered"),
    ],
)
def test_a_history_that_breaks_a_rule_is_refused(history: model_replay.Steps, tmp_path: Path) -> None:
    """What the specification does not allow fails the replay, with the line where it begins."""
    done = model_replay.replay(history, tmp_path)
    assert done.returncode == 1
    assert "delivery /1" in done.stderr
