"""Problems of sources and of the archive: sources that cannot be read, months that cannot be archived."""

from __future__ import annotations

from collections.abc import Iterator

from relevo.config import REJECT_ATTEMPTS
from relevo.core.phrases import Phrase
from relevo.operators.formats import in_numbers, in_words
from relevo.operators.health.problem import USUAL, Problem, Row

_SILENT_SOURCE_S = 3_600.0
_NO_NEWS_S = 3 * 86_400.0  # a long weekend


def of_source(source: Row) -> Iterator[Problem]:
    """Name what is wrong with a source."""
    name = source["source"]
    for problem in source["problems"]:
        yield Problem("source_problem", "source {source}: {problem}", source=name, problem=problem)
    if source["given_up"]:
        yield Problem(
            "rejects_given_up",
            "source {source}: {rejects} tried {n} times and given up; `relevo rejects --source {source}` "
            "lists them with their reasons, --retry tries them again",
            source=name,
            rejects=in_numbers(source["given_up"], "reject was", "rejects were"),
            n=REJECT_ATTEMPTS,
        )
    since_ok_s, since_news_s = source["since_ok_s"], source["since_news_s"]
    if source["last_outcome"] in ("unavailable", "rejected") and (since_ok_s is None or since_ok_s > _SILENT_SOURCE_S):
        yield Problem(
            "source_unread",
            "source {source} has not been read {since}: {why}; `relevo runs --cycle ingest` shows the runs",
            source=name,
            since=Phrase("for {time}", time=in_words(since_ok_s)) if since_ok_s is not None else Phrase("yet"),
            why=(source["last_detail"] or source["last_outcome"]).removesuffix("."),
        )
    elif since_news_s is not None and since_news_s > max(_NO_NEWS_S, USUAL * (source["news_gap_s"] or 0.0)):
        yield Problem(
            "source_without_news",
            "source {source} has had nothing new for {time}, longer than usual; "
            "check whether its publisher still publishes",
            source=name,
            time=in_words(since_news_s),
        )


def of_month(month: Row) -> Problem:
    """Name a month that could not be archived."""
    return Problem(
        "month_not_archived",
        "{month} is not archived: {why}; archive-export tries again in its next slot, "
        "`relevo run-cycle archive-export` at once",
        month=f"{month['entity']} {month['month']:%Y-%m}",
        why=month["last_error"].removesuffix("."),
    )
