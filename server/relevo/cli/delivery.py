"""The command that shows one delivery: each try, what was said of it, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from relevo.cli.common import MOST_IDS, AsJson, coloured, open_database, out, print_json, print_moments, several, span
from relevo.core.errors import UsageError
from relevo.operators import deliveries, reasons, timeline
from relevo.operators.deliveries import Push, Try

cli = typer.Typer()
Line = tuple[datetime, str, str]
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = (11, 12, 13)


@cli.command(epilog="Example: `relevo delivery 17`; `relevo deliveries --event 4` names those of an event.")
def delivery(
    number: Annotated[int, typer.Argument(min=1, max=MOST_IDS, metavar="ID", help="The delivery's number.")],
    as_json: AsJson = False,
) -> None:
    """Show what happened to one delivery: each attempt with its answer or error, and the end."""
    with open_database() as database:
        seen = deliveries.push(database, number)
    if seen is None:
        raise UsageError(
            f"There is no delivery {number}, or it was archived.", hint="`relevo deliveries` lists those there are."
        )
    if as_json:
        told = {"requests": seen.requests, "failed_attempts": seen.failures, "redriven": seen.redriven}
        print_json([{"delivery": seen.delivery, **told, "pauses": seen.pauses}])
        return
    row = seen.delivery
    to = f"event {row['event_id']}, to installation {row['installation_id']}"
    out.print(f"[bold]Delivery {row['id']}[/] of {to}: {coloured(row['status'])}")
    print_moments(sorted(lines(seen), key=lambda line: line[0]))


def lines(seen: Push) -> Iterator[Line]:
    """Yield what happened to a delivery: when, what, and what was said of it."""
    row = seen.delivery
    yield row["created_at"], "made by fan-out", ""
    yield from ((each.at, each.what, each.detail or "") for each in timeline.of_pauses(seen.pauses))
    yield from (_try(n, each) for n, each in enumerate(seen.tries, 1))
    for each in seen.apart:
        what = "receipt: not delivered" if each["found_by"] == "receipt" else "attempt failed"
        yield each["at"], what, reasons.as_said(each["error_code"], each["error_message"])
    yield from ((each["at"], "failed for good", "a dead letter, until it was sent again") for each in seen.deaths)
    yield from ((each["at"], "sent again", f"by {each['by'] or 'an operator'}") for each in seen.redriven)
    yield from _end(seen)


def _end(seen: Push) -> Iterator[Line]:
    """Yield what became of a delivery, or when it goes on."""
    row, wait = seen.delivery, seen.wait or {}
    said = "" if seen.last_is_told else reasons.as_said(row["last_error_code"], row["last_error_message"])
    if seen.was_taken:
        yield row["last_attempt_at"], "accepted", f"ticket {row['provider_ticket_id']}"
    elif said and row["completed_at"] is None:
        yield row["last_attempt_at"], "attempt failed", said
    if row["completed_at"]:
        yield row["completed_at"], row["status"], _ending(seen)
    if wait.get("due_at"):
        quiet = f"its phone has quiet hours until then ({wait['quiet_zone'] or 'UTC'})" if wait["is_quiet"] else ""
        yield wait["due_at"], "next try", quiet
    if wait.get("receipt_at"):
        yield wait["receipt_at"], "receipt is asked for", ""


def _ending(seen: Push) -> str:
    """Return how a delivery ended, and its error if no try has shown it before."""
    row = seen.delivery
    code, message = row["last_error_code"], row["last_error_message"]
    is_told = reasons.is_unsent(code) or any(each["at"] == row["completed_at"] for each in seen.failures)
    said = "" if is_told else reasons.as_said(code, message)
    return " ".join(filter(None, (reasons.ending(row["status"], row["provider"], code, message), said)))


def _try(n: int, told: Try) -> Line:
    request, failure = told.request, told.failure
    others = request["pushes"] - 1
    beside = f"with {several(others, 'other push', 'other pushes')}" if others else "alone"
    said = reasons.as_said(failure["error_code"], failure["error_message"]) if failure else ""
    detail = " ".join(filter(None, (f"{beside},", _became(request), said)))
    return request["journalled_at"], f"{ordinal(n)} try", detail


def _became(request: dict[str, Any]) -> str:
    if request["answered_at"] is None:
        return "no answer came."
    after = span((request["answered_at"] - request["journalled_at"]).total_seconds())
    outcome = request["outcome"] or "answered"
    return f"after {after}: {reasons.REPLIES.get(outcome, outcome)}."


def ordinal(n: int) -> str:
    """Write the how manieth: 1st, 2nd, 3rd, 4th."""
    return f"{n}{'th' if n % 100 in _TEENS else _ENDINGS.get(n % 10, 'th')}"
