"""What the overview's figures and sentences say, by table, without a database or a browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.client.progress import progress_of
from relevo.client.values import EventStatus
from relevo.core.i18n import ngettext, translated, use_language
from relevo.core.phrases import Phrase
from relevo.http.dashboard.formats import sentence
from relevo.http.dashboard.templating import ENVIRONMENT

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _english() -> Iterator[None]:
    """Let each test begin and end in English."""
    use_language("en")
    yield
    use_language("en")


def queue(**more: Any) -> dict[str, Any]:
    """Make the counts of a queue."""
    counts = {"pending": 0, "due_now": 0, "due_now_is_at_least": False, "sent": 141, "total": 200}
    return counts | {"oldest_pending_age_seconds": None} | more


def figures(macro: str, queue: dict[str, Any]) -> str:
    """Return what the system page's figures say of a queue."""
    return said("system_figures.html", macro, queue)


def said(template: str, macro: str, *values: object) -> str:
    """Return what a macro of the pages writes."""
    return str(getattr(ENVIRONMENT.get_template(template).module, macro)(*values)).strip()


@pytest.mark.parametrize(
    ("counts", "oldest", "told"),
    [
        ({}, None, "nothing is due"),
        ({"pending": 18}, None, "nothing is due; 18 wait for their time"),
        ({"pending": 1}, None, "nothing is due; 1 waits for its time"),
        ({"pending": 7, "due_now": 7}, 90.0, "oldest 2 min"),
        ({"pending": 9, "due_now": 7}, 90.0, "oldest 2 min; 2 wait for their time"),
        ({"pending": 90_000, "due_now": 20_000, "due_now_is_at_least": True}, 90.0, "oldest 2 min"),
    ],
)
def test_what_is_due_and_what_waits_stand_together(counts: dict[str, Any], oldest: float | None, told: str) -> None:
    """That nothing is due does not say that nothing waits; what was not counted to its end is not subtracted."""
    assert figures("waiting", queue(**counts, oldest_pending_age_seconds=oldest)) == told


def test_it_is_said_in_spanish() -> None:
    """Both halves of it."""
    use_language("es")
    assert figures("waiting", queue(pending=18)) == "no hay nada por enviar; 18 esperan su hora"


def test_the_figure_of_what_is_sent_is_told_from_the_charts() -> None:
    """It counts states, and says beside itself that the charts count acts."""
    assert "The charts also count pushes" in figures("sent_of_all", queue())


def test_the_next_attempt_waits_for_an_open_breaker() -> None:
    """What is due is not tried now while its project is stopped; what is tried later still names its time."""
    assert said("timeline.html", "next_attempt", NOW, NOW, []) == "now"
    assert (
        said("timeline.html", "next_attempt", NOW, NOW, ["app"]) == "when project app sends again: its breaker is open"
    )
    assert "in 5 min" in said("timeline.html", "next_attempt", NOW + timedelta(minutes=5), NOW, ["app"])


def test_a_probe_that_is_due_was_not_tried_in_the_past() -> None:
    """Until its time comes that is told; from then on, that the next push is the probe."""
    row = {"repeats_held": False, "breaker": "open", "breaker_reason": "403", "probe_at": NOW + timedelta(minutes=5)}
    assert "in 5 min" in said("timeline.html", "waits_for", row, None, NOW)
    for late in (timedelta(0), timedelta(minutes=5)):
        told = said("timeline.html", "waits_for", row, None, NOW + timedelta(minutes=5) + late)
        assert told == "the breaker is open (403); the next push that is due is a probe."


@pytest.mark.parametrize(
    ("state", "counts", "word"),
    [
        ("waiting", {}, "waiting"),
        ("cancelled", {"sent": 1}, "cancelled"),
        ("fanned", {}, "finished"),
        ("fanned", {"ok": 3, "failed": 1}, "finished"),
        ("fanned", {"ok": 3, "sent": 1, "pending": 0}, "sent"),
        ("fanned", {"sent": 3, "retryable": 1}, "sending"),
        ("fanned", {"pending": 1}, "sending"),
    ],
)
def test_how_far_an_event_is_has_one_word(state: str, counts: dict[str, int], word: str) -> None:
    """It is finished when nothing is left to send or to confirm, and not before."""
    assert progress_of(state, counts) == word
    assert EventStatus(1, "t", "k", state, counts, {}).progress == word  # type: ignore[arg-type]


def test_a_sentence_tells_times_as_the_page_does() -> None:
    """A script can turn them into the viewer's own; a time in a command, or what is none, stays as it is."""
    told = str(sentence("stopped since 2026-11-16 07:32:41Z; `x --at 2026-11-16 07:32Z`, not 2026-99-16 07:32Z"))
    assert told.count("<time") == told.count("data-local") == 1
    assert 'datetime="2026-11-16T07:32:41.000Z"' in told
    assert "2026-11-16 07:32:41 UTC</time>; <code>x --at 2026-11-16 07:32Z</code>, not 2026-99-16 07:32Z" in told


def test_one_is_told_as_one_in_spanish() -> None:
    """The verb goes with the count, and a date follows a colon."""
    use_language("es")
    one, many = "%(n)s delivery failed for good", "%(n)s deliveries failed for good"
    assert ngettext(one, many, 1) == "1 entrega falló definitivamente"
    assert ngettext(one, many, 2000) == "2.000 entregas fallaron definitivamente"
    assert translated(Phrase("next probe at {at}", at="2026-11-16 07:32:41Z")) == "próxima prueba: 2026-11-16 07:32:41Z"
