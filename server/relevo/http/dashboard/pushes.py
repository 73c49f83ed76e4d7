"""One delivery: one push to one phone, why it was made, each attempt, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.app import sandbox_address
from relevo.http.dashboard import reasons
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.events import pause_moment, request_moment, waits_for
from relevo.http.dashboard.formats import ago, count, instant, number
from relevo.http.dashboard.html import Child, Markup, el, outside
from relevo.http.dashboard.labels import KINDS, state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, facts, part
from relevo.http.dashboard.page import Page, show
from relevo.http.dashboard.parts import Moment, clipped, event_link, owner_link, phone_link, phone_path, timeline
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import deliveries
from relevo.operators.deliveries import Push, Try
from relevo.operators.timeline import of_pauses

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_IDS = 2**63 - 1
_MANY_TRIES = 3


@router.get("/dashboard/deliveries/{delivery_id}")
async def delivery(request: Request, delivery_id: Annotated[int, Path(ge=0, le=_MOST_IDS)]) -> Response:
    """Show one delivery."""
    seen = await threads_of(request).run(deliveries.push, delivery_id)
    if seen is None:
        raise Problem(404, t("There is no delivery {id}, or it was archived.", id=delivery_id))
    sandbox = sandbox_address(request.app.state.relevo.settings)
    title = t("Delivery {id}", id=delivery_id)
    body = [
        _head(request, seen, title, sandbox),
        part(t("What happened"), timeline([*moments(seen)], label=t("What happened"))),
    ]
    return show(request, title, body)


def _head(request: Request, seen: Push, title: str, sandbox: str | None) -> Markup:
    row = seen.delivery
    got = None
    if sandbox and row["provider"] == "expo":
        got = outside(f"{sandbox}/deliveries/{row['id']}", t("See what the phone got, in the sandbox"))
    told = facts(
        (t("Event"), event_link(row["event_id"], clipped(seen.title, 160) or None)),
        (t("Owner"), owner_link(row["owner"])),
        (t("Phone"), phone_link(row["installation_id"], str(row["installation_id"]))),
        (t("Why"), _why(seen)),
        (t("Project"), row["project"]),
        (t("Attempts"), _attempts(row["attempt_count"], len(seen.requests))),
        (t("Error"), clipped(row["last_error_code"])),
        (t("Ticket"), el("code", row["provider_ticket_id"]) if row["provider_ticket_id"] else None),
        (t("In the sandbox"), got),
    )
    return el(
        "section",
        el("h1", title, " ", state(row["status"])),
        el("p", reasons.meaning(row["status"], row["provider"])),
        told,
        el("p", offer(request, "redrive", t("Send again…"), delivery=row["id"])) if row["status"] == "failed" else None,
        class_="card",
    )


def _attempts(counted: int, requests: int) -> str:
    """Write how many attempts count; where there were more requests, those too, for some cost no attempt."""
    if requests <= counted:
        return number(counted)
    names = {"n": number(counted), "requests": count(requests, "request")}
    return t("1 that counts, in {requests}", **names) if counted == 1 else t("{n} that count, in {requests}", **names)


def _why(seen: Push) -> Child:
    row = seen.delivery
    again = address(phone_path(row["installation_id"]), event=row["event_id"]) + "#why"
    since = [el("span", each, class_="faint block") for each in reasons.changed_since(seen.why, seen.changes)]
    return [clipped(reasons.rule(seen.why), 400), " ", el("a", t("Explain"), href=again), since]


def _sent_anew(by: str | None) -> str:
    return t("{who} had it sent anew.", who=clipped(by, 100)) if by else t("An operator had it sent anew.")


def moments(seen: Push) -> Iterator[Moment]:
    """Tell what happened to a delivery, and what is to come."""
    yield Moment(seen.delivery["created_at"], t("Made by fan-out: this phone is to get the event."))
    yield from map(pause_moment, of_pauses(seen.pauses))
    yield from _tries(seen.tries)
    yield from map(_went_wrong, _apart(seen))
    yield from (Moment(row["at"], _died(row), kind="bad") for row in seen.deaths)
    yield from (Moment(row["at"], _sent_anew(row["by"])) for row in seen.redriven)
    for each in seen.late_tickets:
        told = t(
            "The push service took it, but the answer came late: ticket {ticket}.", ticket=clipped(each["ticket_id"])
        )
        yield Moment(each["recorded_at"], told)
    yield from _answer(seen)
    if seen.wait is not None:
        yield Moment(None, _waits(seen, seen.wait), kind="now")


def _tries(tries: Sequence[Try]) -> Iterator[Moment]:
    """Tell of each try; many in a row that went alike are told at once."""
    numbered = enumerate(tries, 1)
    for _, alike in groupby(numbered, key=lambda each: _went(each[1])):
        same = list(alike)
        if len(same) < _MANY_TRIES:
            yield from (_try(n, each) for n, each in same)
        else:
            yield _folded([each for _, each in same])


def _went(told: Try) -> tuple[object, ...]:
    """Return by what two tries are alike: what became of the request, and what was said of it."""
    request = told.request
    return request["outcome"], request["answered_at"] is None, request["pushes"], _said(told)


def _said(told: Try) -> str:
    failure = told.failure
    return reasons.as_said(failure["error_code"], failure["error_message"]) if failure else ""


def _folded(tries: Sequence[Try]) -> Moment:
    """Tell of several tries that went alike as one moment, that of the first; the last one's is told with it."""
    first, last = tries[0].request, tries[-1].request
    outcome = first["outcome"] or "answered"
    became = t("no answer was seen") if first["answered_at"] is None else t(reasons.REPLIES.get(outcome, outcome))
    what = t("{n} tries, each: {became}.", n=number(len(tries)), became=clipped(became))
    detail = [_said(tries[0]), " ", t("The last of them:"), " ", instant(last["journalled_at"]), "."]
    return Moment(first["journalled_at"], el("strong", what), detail, "" if outcome == "answered" else "warn")


def _try(n: int, told: Try) -> Moment:
    """Tell of one request it was in, and what went wrong there."""
    request = told.request
    moment = request_moment(request, _which(request["pushes"] - 1), said=_said(told))
    return replace(moment, what=[el("strong", t("Try {n}.", n=number(n))), " ", moment.what])


def _which(others: int) -> str:
    if not others:
        return t("with this push alone")
    return t("with this push and {others}", others=count(others, "other push", "other pushes"))


def _apart(seen: Push) -> list[dict[str, Any]]:
    """Return what went wrong in no request; what ended it is told with its end."""
    return [row for row in seen.apart if row["at"] != seen.delivery["completed_at"]]


def _went_wrong(row: dict[str, Any]) -> Moment:
    by_receipt = row["found_by"] == "receipt"
    told = t("The receipt says that it did not arrive.") if by_receipt else t("It did not get through.")
    return Moment(row["at"], told, reasons.as_said(row["error_code"], row["error_message"]), "warn")


def _died(row: dict[str, Any]) -> Child:
    return [state(row["became"]), " ", t("It had failed for good, and lay among the dead letters.")]


def _answer(seen: Push) -> Iterator[Moment]:
    row = seen.delivery
    error = reasons.as_said(row["last_error_code"], row["last_error_message"])
    if seen.was_taken:
        ticket = t("The push service took it: ticket {ticket}.", ticket=clipped(row["provider_ticket_id"]))
        yield Moment(row["last_attempt_at"], reasons.taken_by_server(row["provider"]) or ticket)
    elif row["completed_at"] is None and not seen.last_is_told:
        told = t("Attempt {n} did not get through.", n=number(row["attempt_count"]))
        yield Moment(row["last_attempt_at"], told, error, "warn")
    if row["lapse_count"]:
        told = t("Whoever held it before was lost, {times}.", times=count(row["lapse_count"], "time"))
        yield Moment(row["updated_at"], told, kind="warn")
    yield from _end(seen, error)


def _end(seen: Push, error: str) -> Iterator[Moment]:
    row = seen.delivery
    status = row["status"]
    if row["completed_at"]:
        by_receipt = status == "ok" and row["provider_receipt_id"]
        receipt = (
            t("The receipt says: taken by Apple or Google.") if by_receipt else reasons.meaning(status, row["provider"])
        )
        told = [state(status), " ", receipt]
        is_told = any(each.failure and each.failure["at"] == row["completed_at"] for each in seen.tries)
        detail = error if status != "ok" and not is_told else None
        yield Moment(row["completed_at"], told, detail, KINDS.get(status, ""))
    elif row["provider_receipt_id"] and error and not any(each["found_by"] == "receipt" for each in seen.failures):
        yield Moment(row["updated_at"], t("The receipt says that it did not arrive."), error, "warn")


def _waits(seen: Push, wait: dict[str, Any]) -> Child:
    now = seen.delivery["now"]
    if seen.delivery["status"] == "sent":
        if wait["receipts_paused"]:
            return t("Asking for receipts is paused ({reason}).", reason=clipped(wait["receipts_paused"]))
        if wait["receipt_at"] is None:
            return t("Its receipt is being asked for.")
        if wait["receipt_at"] <= now:
            return t("Its receipt is due to be asked for.")
        return [t("It waits for its receipt, which is asked for"), " ", ago(wait["receipt_at"], now), "."]
    if wait["worker_id"] is not None:
        return t("Worker {worker} is sending it.", worker=clipped(wait["worker_id"]))
    row = {**wait, "next_attempt_at": wait["due_at"], "claimed": False}
    return [t("It waits:"), " ", waits_for(row, wait["paused_reason"], now)]
