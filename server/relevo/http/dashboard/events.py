"""Events: the latest of them, and the saga of each, from where it came from to what it waits for now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from relevo.app import sandbox_address
from relevo.client.progress import progress_of
from relevo.http.dashboard import reasons
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.formats import ago, count, duration, instant, number, sentence
from relevo.http.dashboard.html import Child, Markup, el, outside, text
from relevo.http.dashboard.labels import DELIVERY_STATUSES, EVENT_STATES, state
from relevo.http.dashboard.language import noted, t
from relevo.http.dashboard.lists import address, box, choice, facts, filters, part
from relevo.http.dashboard.page import Page, show, table
from relevo.http.dashboard.parts import (
    Moment,
    chips,
    clipped,
    delivery_link,
    event_link,
    following,
    owner_link,
    phone_link,
    short,
    timeline,
)
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import deliveries, events
from relevo.operators.events import Story
from relevo.operators.health.waiting import stopped
from relevo.operators.reading import Page as Listed
from relevo.operators.timeline import Moment as Happened
from relevo.operators.timeline import is_taken

router = APIRouter(route_class=Page, include_in_schema=False)
HOME = "/dashboard/events"
_MOST_IDS = 2**63 - 1
_CHOSEN = {"fanned": noted("sending, sent or finished")}
"""States that pages show as several."""


@router.get(HOME)
async def latest(
    request: Request,
    event_type: Annotated[str, Query(alias="type", max_length=100)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    project: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[int | None, Query(ge=1, le=_MOST_IDS)] = None,
) -> Response:
    """Show the latest events, of one kind if asked."""
    chosen = {"type": event_type, "status": status if status in EVENT_STATES else "", "project": project}
    found = await threads_of(request).run(
        events.page,
        event_type=event_type or None,
        state=chosen["status"] or None,
        project=project or None,
        before=before,
    )
    kinds = await threads_of(request).run(events.types)
    body = el("section", el("h1", t("Events")), _filters(chosen, kinds), _list(found, chosen), class_="card")
    return show(request, t("Events"), body, live=before is None)


def _filters(chosen: dict[str, str], types: list[str]) -> Markup:
    """Write the form by which events are chosen; the types there are are suggested."""
    states = {"": t("any"), **{each: t(_CHOSEN.get(each, each)) for each in EVENT_STATES}}
    return filters(
        HOME,
        box("type", t("Type"), chosen["type"], maxlength=100, list="types"),
        el("datalist", [el("option", value=each) for each in types], id="types"),
        choice("status", t("State"), states, chosen["status"]),
        box("project", t("Project"), chosen["project"]),
    )


def _list(found: Listed, chosen: dict[str, str]) -> list[Markup]:
    rows: list[list[Child]] = [
        [
            el(
                "div",
                event_link(row["id"], clipped(row["title"], 90) or t("(no title)")),
                el("div", clipped(row["body"]), class_="faint"),
                class_="said",
            ),
            el(
                "div",
                el("div", clipped(row["event_type"], 60)),
                el("div", clipped(row["event_key"], 60), class_="faint"),
                class_="named",
            ),
            state(progress_of(row["state"], row["deliveries"])),
            _progress(row["deliveries"]),
            instant(row["created_at"]),
        ]
        for row in found.rows
    ]
    heads = [t("Event"), t("Type and key"), t("State"), t("Deliveries"), t("Enqueued")]
    none_yet = sentence(t("There are no events yet: `relevo enqueue` makes one."))
    empty = t("No event fits.") if any(chosen.values()) else none_yet
    said = t("The latest {n} were looked at.", n=number(found.looked_at)) if any(chosen.values()) and found.next else ""
    told = table(heads, rows, empty=empty, label=t("Events"))
    more = following(HOME, **chosen, before=found.next) if found.next else text("")
    return [told, el("p", said, class_="faint") if said else text(""), more]


def _progress(deliveries: dict[str, Any]) -> Child:
    """Write how many deliveries are in each status, the most telling ones first."""
    told = [(each, int(deliveries[each])) for each in DELIVERY_STATUSES if int(deliveries.get(each, 0)) > 0]
    return [[el("span", state(name), f" {number(value)}", class_="one"), " "] for name, value in told] or t("none")


@router.get("/dashboard/events/{event_id}")
async def story(
    request: Request,
    event_id: Annotated[int, Path(ge=0, le=_MOST_IDS)],
    status: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str | None, Query(max_length=40)] = None,
    requests: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Show what happened to one event."""
    chosen = status if status in DELIVERY_STATUSES else ""
    seen = await threads_of(request).run(events.story, event_id, requests_after=requests)
    if seen is None:
        archived = next(iter(await threads_of(request).run(events.find, str(event_id))), None)
        said = t("Event {id} was archived.", id=event_id) if archived else t("There is no event {id}.", id=event_id)
        raise Problem(404, said, hint=t("`relevo archive restore` brings a month back.") if archived else "")
    listed = await threads_of(request).run(deliveries.page_of_event, seen, status=chosen or None, after=after)
    sandbox = sandbox_address(request.app.state.relevo.settings)
    title = clipped(seen.event["title"], 160) or t("Event {id}", id=event_id)
    body = [
        _head(seen, title, _switches(request, seen)),
        part(
            t("What happened"),
            timeline([*moments(seen)], label=t("What happened")),
            _phones(sandbox, event_id),
            id_="happened",
        ),
        _errors(seen),
        part(t("Deliveries"), _statuses(seen, chosen), _deliveries(seen, listed, chosen), id_="deliveries"),
    ]
    return show(request, title, body, live=after is None and not requests)


def _phones(sandbox: str | None, event_id: int) -> Markup | None:
    if sandbox is None:
        return None
    return el("p", outside(f"{sandbox}/events/{event_id}", t("See what the phones got, in the sandbox")))


def _head(seen: Story, title: str, switches: Markup) -> Markup:
    event = seen.event
    told = facts(
        (t("Says"), clipped(event["body"], 600)),
        (t("Event"), f"{event['id']}"),
        (t("Type"), event["event_type"]),
        (t("Key"), event["event_key"]),
        (t("For"), _audience(seen)),
        (t("Category"), event["category"]),
        (t("Tender"), clipped(event["nombre"], 300) if event["external_id"] else None),
        (t("Lane"), t("urgent: it overtakes the others") if event["lane"] == "urgent" else None),
        (t("At most once"), t("yes: rather not at all than twice") if event["at_most_once"] else None),
        (t("Announces again"), event_link(event["former_event_id"]) if event["former_event_id"] else None),
    )
    stands = state("waiting", "warn") if _held_up(seen) else state(seen.status.progress)
    head = el("h1", title, " ", stands), el("p", summary(seen))
    return el("section", head, told, switches, class_="card")


def _switches(request: Request, seen: Story) -> Markup:
    """Offer what an operator can do with an event: end it, or send again what failed of it."""
    event, failed = seen.event["id"], seen.counts.get("failed", 0)
    waits = seen.event["state"] in ("waiting", "held", "fanning") or any(map(seen.counts.get, ("pending", "retryable")))
    open_still = waits and seen.event["state"] not in ("cancelled", "completed")
    return el(
        "div",
        offer(request, "redrive", t("Send what failed again…"), event=event) if failed else None,
        offer(request, "cancel", t("Cancel it…"), grave=True, event=event) if open_still else None,
        class_="row",
    )


def summary(seen: Story) -> str:
    """Say in a sentence how an event stands."""
    counts = seen.counts
    arrived, sent = counts.get("ok", 0), counts.get("sent", 0)
    if seen.event["state"] in ("cancelled", "completed"):
        return t("It was ended; {n} of its pushes had been sent by then.", n=number(arrived + sent))
    if seen.event["state"] == "held":
        return t("The runaway brake holds it until an operator releases it.")
    if seen.event["state"] in ("waiting", "fanning"):
        return t("It has not gone out yet.")
    return _sent_so_far(seen)


def _sent_so_far(seen: Story) -> str:
    counts = seen.counts
    still = counts.get("pending", 0) + counts.get("retryable", 0)
    total = sum(counts.values())
    if not counts:
        return _to_nobody(seen)
    if still and (why := _held_up(seen)):
        one = noted("It waits: 1 of {total} is not sent yet, because {why}.")
        return _out_of(still, total, one, noted("It waits: {n} of {total} are not sent yet, because {why}."), why=why)
    if still:
        one = noted("It is going out: 1 of {total} is still to be sent.")
        return _out_of(still, total, one, noted("It is going out: {n} of {total} are still to be sent."))
    if sent := counts.get("sent", 0):
        one = noted("All is sent; 1 of {total} waits to be confirmed.")
        return _out_of(sent, total, one, noted("All is sent; {n} of {total} wait to be confirmed."))
    if not counts.get("ok"):
        return t("It is done, and reached nobody: none of {total} was confirmed.", total=number(total))
    one = noted("It is done: 1 of {total} was confirmed.")
    return _out_of(counts["ok"], total, one, noted("It is done: {n} of {total} were confirmed."))


def _to_nobody(seen: Story) -> str:
    if seen.nobody is None:
        return t("It went out to nobody: no phone was meant, or none may receive pushes.")
    return t("It went out to nobody: {why}.", why=reasons.nobody(seen.nobody, seen.event["owners"]))


def _held_up(seen: Story) -> str:
    """Say why nothing of an event goes out though its deliveries are made; nothing if some of it does."""
    if seen.event["state"] != "fanned":
        return ""
    whys = [_holds(row, seen.paused.get("dispatch"), seen.event["now"]) for row in seen.waits]
    return "; ".join(dict.fromkeys(whys)) if all(whys) else ""


def _holds(row: dict[str, Any], paused: str | None, now: datetime) -> str:
    """Say what holds up open deliveries of a project, as the end of a sentence; nothing if nothing does."""
    if row["repeats_held"]:
        return t("the runaway brake holds its pushes")
    if paused:
        return t("sending is paused")
    if row["breaker"] not in (None, "closed"):
        return t("the breaker of project {project} is open", project=clipped(row["project"]))
    if row["rest_until"] is not None and row["rest_until"] > now:
        return t("the push service asked for a rest")
    return ""


def _out_of(some: int, total: int, one: str, many: str, **more: str) -> str:
    """Say something of some out of all, in other words of one."""
    if some == 1:
        return t(one, total=number(total), **more)
    return t(many, n=number(some), total=number(total), **more)


def _audience(seen: Story) -> Child:
    event = seen.event
    if event["owners"]:
        return [[owner_link(each), " "] for each in event["owners"]]
    if event["audience"] == "installations":
        return t("{phones} that it names", phones=count(event["named"], "phone"))
    if event["audience"] == "matching":
        topics = ", ".join(event["match_topics"] or ())
        return t("phones whose preferences match") + (f": {clipped(topics, 200)}" if topics else "")
    return t("everyone")


def moments(seen: Story) -> Iterator[Moment]:
    """Say what happened to an event, and what is to come."""
    for each in seen.moments:
        if (said := _SAID[each.code](seen, each)) is not None:
            yield said
    yield from (Moment(None, each, kind="now") for each in waits(seen))


def _published(_seen: Story, each: Happened) -> Moment:
    event = each.row
    by = {"code": clipped(event["external_id"]), "whom": clipped(event["organismo"]) or "—"}
    return Moment(each.at, t("The tender {code} was published by {whom}.", **by))


def _first_seen(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("The source {source} found it.", source=clipped(each.row["source"])))


def _enqueued(_seen: Story, each: Happened) -> Moment:
    source = each.row["source"]
    by_source = t("Enqueued: the source {source} had something new.", source=clipped(source))
    return Moment(each.at, by_source if source else t("Enqueued by the app, or by hand."))


def _scheduled(_seen: Story, each: Happened) -> Moment:
    late = each.at > each.row["now"]
    said = t("Scheduled for this time; before it nothing happens.") if late else t("Its scheduled time came.")
    return Moment(each.at, said, kind="later" if late else "")


def _held(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("The runaway brake held it."), each.row["held_reason"], "warn")


def _released(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("The runaway brake let it go."))


def _pushes_held(_seen: Story, each: Happened) -> Moment:
    said = t("The runaway brake held its pushes: they were repeated too often.")
    return Moment(each.at, said, each.row["repeats_reason"], "warn")


def _fanout_began(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("Relevo began to look who gets it (fan-out)."))


def _fanout_failed(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("Its fan-out failed."), clipped(each.row["fanout_error"], 300), "warn")


def _fanout_finished(seen: Story, each: Happened) -> Moment:
    event = each.row
    return Moment(each.at, _fanned(seen), event["end_reason"] if event["ended_at"] is None else None)


def _fanned(seen: Story) -> str:
    event = seen.event
    phones, made = event["targets_selected"], count(event["deliveries_created"], "delivery", "deliveries")
    if seen.nobody is not None:
        return t("Nobody gets it: {why}.", why=reasons.nobody(seen.nobody, event["owners"]))
    if not phones:
        return t("Nobody gets it: no phone is meant, or none may receive pushes.")
    audience = "owners" if event["owners"] else event["audience"]
    if phones == 1:
        return t("1 phone gets it, {because}: {made}.", because=t(reasons.MATCHED_ONE[audience]), made=made)
    because = t(reasons.MATCHED[audience])
    return t("{n} phones get it, {because}: {made}.", n=number(phones), because=because, made=made)


def _first_sent(seen: Story, each: Happened) -> Moment | None:
    """Say that the first push was sent, unless the request whose answer it was is shown."""
    if any(is_taken(row) and row["taken"] and row["journalled_at"] <= each.at for row in seen.requests.rows):
        return None
    first = t("The first push was handed to the push service.")
    return Moment(each.at, reasons.taken_by_server(each.row["event_type"]) or first)


def _request(_seen: Story, each: Happened) -> Moment:
    row = each.row
    which, said = t("with {n} of its pushes", n=number(row["of_event"])), reasons.in_words(row["said_code"])
    return request_moment(row, which, _taken(row), said)


def _more_requests(seen: Story, each: Happened) -> Moment:
    """Lead to the requests behind those that are shown."""
    more = seen.requests.more
    if more and seen.requests.is_all:
        said = t("and {requests}", requests=count(more, "more request"))
    elif more:
        said = t("and {requests}, or more", requests=count(more, "more request"))
    else:
        said = t("look at later requests")
    place = address(f"{HOME}/{seen.event['id']}", requests=seen.requests.next) + "#happened"
    return Moment(each.at, el("a", said, href=place, rel="next"), kind="faint")


def _incident(_seen: Story, each: Happened) -> Moment:
    what: str = each.row["what"]
    said = t(reasons.INCIDENTS.get(what, what), project=clipped(each.row["project"]))
    return Moment(each.at, said, _detail(what, each.row["detail"] or ""), "warn")


def _detail(what: str, detail: str) -> str:
    """Say more of what happened to a project, as far as there is more."""
    if what == "redriven":
        return _opened_again(detail)
    if what not in ("breaker_opened", "probe_failed"):
        return detail
    why = reasons.because(detail)
    return why[:1].upper() + why[1:]


def _opened_again(detail: str) -> str:
    """Say how many dead letters were opened again, in the language of the page."""
    many = detail.split(" ", 1)[0]
    if not many.isdecimal():
        return detail
    if int(many) == 1:
        return t("1 dead letter was opened again.")
    return t("{n} dead letters were opened again.", n=number(int(many)))


def _receipts_failed(_seen: Story, each: Happened) -> Moment:
    failed = each.row["receipts_failed"]
    many = t("Receipts say that {n} of its pushes did not arrive; this was the last of them.", n=number(failed))
    one = t("A receipt says that one of its pushes did not arrive.")
    return Moment(each.at, one if failed == 1 else many, kind="warn")


def _last_ended(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("The last of its deliveries ended."), _times(each.row["most_attempts"]), "good")


def _last_attempt(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("The last attempt so far."), _times(each.row["most_attempts"]))


def _times(tries: int) -> str | None:
    return t("One of its pushes was tried {n} times.", n=number(tries)) if tries > 1 else None


def _ended(_seen: Story, each: Happened) -> Moment:
    cancelled = each.row["state"] == "cancelled"
    said = t("It was cancelled.") if cancelled else t("It was handled elsewhere.")
    return Moment(each.at, said, each.row["end_reason"], "bad" if cancelled else "")


def _swept(_seen: Story, each: Happened) -> Moment:
    return Moment(each.at, t("What was still open of it was ended unsent."))


def _deadline(_seen: Story, each: Happened) -> Moment:
    late = each.at > each.row["now"]
    said = t("Its deadline: what is not sent by then is not sent.") if late else t("Its deadline passed.")
    return Moment(each.at, said, kind="later" if late else "")


_SAID: dict[str, Callable[[Story, Happened], Moment | None]] = {
    "published": _published,
    "first_seen": _first_seen,
    "enqueued": _enqueued,
    "scheduled": _scheduled,
    "held": _held,
    "released": _released,
    "pushes_held": _pushes_held,
    "fanout_began": _fanout_began,
    "fanout_failed": _fanout_failed,
    "fanout_finished": _fanout_finished,
    "first_sent": _first_sent,
    "request": _request,
    "more_requests": _more_requests,
    "incident": _incident,
    "receipts_failed": _receipts_failed,
    "last_ended": _last_ended,
    "last_attempt": _last_attempt,
    "ended": _ended,
    "swept": _swept,
    "deadline": _deadline,
    "paused": lambda _seen, each: pause_moment(each),
    "resumed": lambda _seen, each: pause_moment(each),
}
"""How a page says each moment of an event's timeline."""


def _taken(row: dict[str, Any]) -> str:
    """Say how many of an event's pushes in a request were taken; nothing where that is not known of all of them."""
    if not is_taken(row):
        return ""
    refused = row["refused"]
    if row["of_event"] == 1:
        return t("not taken") if refused else t("taken")
    if not refused:
        return t("all {n} taken", n=number(row["taken"]))
    return t("{taken} taken, {refused} not", taken=number(row["taken"]), refused=number(refused))


def pause_moment(each: Happened) -> Moment:
    """Say that a pause that is over began, or ended."""
    row = each.row
    if each.code == "paused":
        paused = t(reasons.PAUSED[row["cycle"]], who=clipped(row["paused_by"]))
        return Moment(each.at, paused, clipped(row["reason"], 300), "warn")
    after = duration((row["resumed_at"] - row["paused_at"]).total_seconds())
    return Moment(each.at, t(reasons.RESUMED[row["cycle"]], who=clipped(row["resumed_by"]), time=after))


def request_moment(row: dict[str, Any], which: str, taken: str = "", said: str = "") -> Moment:
    """Tell of one request to the push service, what became of it, and what was said of that."""
    names = {"id": short(row["id"]), "which": which, "worker": clipped(row["worker_id"], 60)}
    told = t("Request {id} went out {which}, from worker {worker}.", **names)
    if row["answered_at"] is None:
        return Moment(row["journalled_at"], told, said or t("No answer was seen yet."), "warn")
    outcome = row["outcome"] or "answered"
    became = t(reasons.REPLIES.get(outcome, outcome))
    after = duration((row["answered_at"] - row["journalled_at"]).total_seconds())
    told_so_far = ": ".join(filter(None, (clipped(became), taken)))
    detail = t("After {time}: {became}.", time=after, became=told_so_far)
    kind = "" if outcome == "answered" and not said else "warn"
    return Moment(row["journalled_at"], told, " ".join(filter(None, (detail, said))), kind)


def waits(seen: Story) -> Iterator[Child]:
    """Say what an event waits for now."""
    event = seen.event
    if event["state"] in ("waiting", "fanning"):
        yield _before_fanout(seen)
    elif event["state"] == "held":
        yield t("It waits until an operator releases the runaway brake.")
    for row in seen.waits:
        names = {"deliveries": count(row["deliveries"], "delivery", "deliveries"), "project": clipped(row["project"])}
        yield [
            t("{deliveries} of project {project}:", **names),
            " ",
            waits_for(row, seen.paused.get("dispatch"), event["now"]),
        ]
    if sent := seen.counts.get("sent", 0):
        yield count(
            sent,
            "delivery waits for the push service to say what became of it.",
            "deliveries wait for the push service to say what became of them.",
        )


def _before_fanout(seen: Story) -> Child:
    event = seen.event
    if event["scheduled_at"] > event["now"]:
        return [t("It waits for its time,"), " ", ago(event["scheduled_at"], event["now"]), "."]
    if "fanout" in seen.paused:
        return t("It waits: fan-out is paused ({reason}).", reason=clipped(seen.paused["fanout"]))
    return t("It waits for its turn in fan-out.")


def waits_for(row: dict[str, Any], paused: str | None, now: datetime) -> Child:
    """Say what open deliveries of a project wait for."""
    if row["repeats_held"]:
        return t("held by the runaway brake until an operator releases it.")
    if paused:
        return t("sending is paused ({reason}).", reason=clipped(paused))
    if row["breaker"] not in (None, "closed"):
        return _probe(row, now)
    if row["rest_until"] is not None and row["rest_until"] > now:
        return [t("the push service asked for a rest; it ends"), " ", ago(row["rest_until"], now), "."]
    due = row["next_attempt_at"]
    if due is not None and due > now:
        return [t("the next attempt comes"), " ", ago(due, now), "."]
    return t("being sent right now.") if row["claimed"] else t("due, and waiting in line.")


def _probe(row: dict[str, Any], now: datetime) -> Child:
    """Say when a project whose breaker is open is tried again."""
    reason = clipped(reasons.because(row["breaker_reason"]), 300)
    if row["probe_at"] is None or row["probe_at"] <= now:
        return t("the breaker is open ({reason}); the next push that is due is a probe.", reason=reason)
    told = t("the breaker is open ({reason}); the next try comes", reason=reason)
    return [told, " ", ago(row["probe_at"], now), "."]


def _errors(seen: Story) -> Markup | None:
    if not seen.errors:
        return None
    rows: list[list[Child]] = [
        [
            number(row["deliveries"]),
            state(row["status"]),
            [
                el("div", clipped(reasons.in_words(row["last_error_code"]))),
                el("div", _as_told(row), class_="faint"),
            ],
            _next(row["next_attempt_at"], seen.event["now"], stopped(seen.waits)),
        ]
        for row in seen.errors
    ]
    heads = [t("Deliveries"), t("State"), t("What went wrong"), t("Next attempt")]
    return part(t("What went wrong"), table(heads, rows, empty="", label=t("What went wrong")))


def _as_told(row: dict[str, Any]) -> str:
    """Write an error as the push service told it."""
    return ": ".join(filter(None, (clipped(row["last_error_code"], 60), clipped(row["example"], 300))))


def _next(due: datetime | None, now: datetime, held: Sequence[str]) -> Child:
    """Say when the next attempt comes; what is due and held up by a breaker waits for its project."""
    if due is None:
        return "—"
    if due <= now and held:
        return t("when project {project} sends again: its breaker is open", project=clipped(", ".join(held)))
    return t("now") if due <= now else ago(due, now)


def _statuses(seen: Story, chosen: str) -> Markup:
    path = f"{HOME}/{seen.event['id']}"
    told: list[tuple[Child, str, bool]] = [
        (t("all {n}", n=number(sum(seen.counts.values()))), f"{path}#deliveries", not chosen)
    ]
    told += [
        (f"{t(name)} {number(seen.counts.get(name, 0))}", address(path, status=name) + "#deliveries", chosen == name)
        for name in DELIVERY_STATUSES
        if seen.counts.get(name, 0) > 0 or chosen == name
    ]
    return chips(told, label=t("By status"))


def _deliveries(seen: Story, listed: Listed, chosen: str) -> list[Markup | None]:
    now = seen.event["now"]
    rows: list[list[Child]] = [
        [
            delivery_link(row["id"]),
            phone_link(row["installation_id"], clipped(row["owner"], 60)),
            state(row["status"]),
            number(row["attempt_count"]),
            ago(row["last_attempt_at"], now) if row["last_attempt_at"] else "—",
            clipped(reasons.briefly(row["status"], row["last_error_code"])),
        ]
        for row in listed.rows
    ]
    heads = [t("Delivery"), t("Phone"), t("State"), t("Attempts"), t("Last attempt"), t("In words")]
    none = t("None of those that were looked at is in this state.") if chosen else t("There are no deliveries.")
    more = following(f"{HOME}/{seen.event['id']}", status=chosen, after=listed.next) if listed.next else None
    return [
        el("p", reasons.meaning(chosen), class_="faint") if chosen else None,
        table(heads, rows, empty=none, label=t("Deliveries")),
        more,
    ]
