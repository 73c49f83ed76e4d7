"""What operators do: cycles on, off and now, what is held let go, events ended, rejects tried again."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from relevo import service
from relevo.access import app_verbs
from relevo.core.model import Report
from relevo.http.dashboard import reasons
from relevo.http.dashboard.acting import Deed, Given, Question, Told, app_of, at_length
from relevo.http.dashboard.formats import count, number
from relevo.http.dashboard.html import Child, el
from relevo.http.dashboard.labels import in_words, state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, box
from relevo.http.dashboard.page import SYSTEM, table
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import actions, events, fleet


def _cycle(request: Request, given: Given) -> tuple[str, str, str]:
    """Return a cycle as it is written, and its name and source; one that is not there is not found."""
    written = given.text("cycle", 200)
    name, source = app_of(request).switch_of(written)
    return written, name, source


def _reason(hint: str) -> Child:
    return box("reason", t("Why"), required=True, maxlength=300, placeholder=hint, autocomplete="off")


async def _ask_pause(request: Request, given: Given) -> Question:
    cycle, _, _ = _cycle(request, given)
    return Question(
        t("Pause {cycle}?", cycle=cycle),
        t("Pause it"),
        t("It stops in the whole fleet until somebody switches it on again; a run under way comes to its end."),
        _reason(t("For whoever finds it at 3 a.m.")),
        {"cycle": cycle},
        back=SYSTEM,
    )


async def _pause(request: Request, given: Given) -> Told:
    cycle, name, source = _cycle(request, given)
    before = await threads_of(request).run(actions.pause, name, given.text("reason"), source=source)
    if before:
        since, why = before["paused_since"], before["paused_because"]
        return Told(
            t("{cycle} was paused already.", cycle=cycle),
            t("Since {since}, because: {why}", since=since, why=why),
            back=SYSTEM,
        )
    again = t("Switch it on again on the page of the system.")
    return Told(t("{cycle} is paused in the whole fleet.", cycle=cycle), again, back=SYSTEM)


async def _ask_resume(request: Request, given: Given) -> Question:
    cycle, _, _ = _cycle(request, given)
    told = t("It runs again in the whole fleet, by its schedule.")
    return Question(
        t("Switch {cycle} on again?", cycle=cycle), t("Switch it on"), told, kept={"cycle": cycle}, back=SYSTEM
    )


async def _resume(request: Request, given: Given) -> Told:
    cycle, name, source = _cycle(request, given)
    if await threads_of(request).run(actions.resume, name, source=source):
        return Told(t("{cycle} is switched on again.", cycle=cycle), back=SYSTEM)
    return Told(t("{cycle} was not paused; nothing was changed.", cycle=cycle), back=SYSTEM)


async def _ask_run(request: Request, given: Given) -> Question:
    cycle, _, _ = _cycle(request, given)
    told = t("It runs once here, by the same lock as its schedule, for as long as a tick may take at most.")
    return Question(t("Run {cycle} now?", cycle=cycle), t("Run it"), told, kept={"cycle": cycle}, back=SYSTEM)


async def _run(request: Request, given: Given) -> Told:
    cycle, _, _ = _cycle(request, given)
    app = app_of(request)
    reports = await at_length(request, lambda _: service.run_beside(app, cycle))
    good = all(report.outcome != "failed" for report in reports)
    heads = [t("Cycle"), t("Outcome"), t("What it did"), ""]
    told = table(heads, [_report(each) for each in reports], empty=t("There is no source to read."), label=t("Runs"))
    title = t("{cycle} has run.", cycle=cycle) if good else t("{cycle} has run and failed.", cycle=cycle)
    return Told(title, told, address("/dashboard/runs", cycle=cycle), good)


def _report(report: Report) -> list[Child]:
    counts = ", ".join(f"{in_words(name)} {number(each)}" for name, each in report.counts.items() if each)
    return [
        report.cycle,
        state(report.outcome),
        report.error or report.reason or counts or t("nothing"),
        el("a", t("The run"), href=f"/dashboard/runs/{report.run_id}") if report.run_id else None,
    ]


async def _ask_release_project(request: Request, given: Given) -> Question:
    project = given.text("project", 250)
    known = {row["project"]: row for row in await threads_of(request).run(fleet.projects)}
    if project not in known:
        raise Problem(404, t("There is no project {project}.", project=project))
    why = known[project]["breaker_reason"] if known[project]["breaker"] != "closed" else None
    anew = t("Its breaker is tried at once; its brake is off and judges anew. What is still wrong stops it again.")
    return Question(
        t("Let {project} send again?", project=project),
        t("Release it"),
        [
            el("p", t("Its breaker opened because: {why}", why=reasons.because(why))) if why else None,
            el("p", anew),
        ],
        kept={"project": project},
    )


async def _release_project(request: Request, given: Given) -> Told:
    project = given.text("project", 250)
    held = await threads_of(request).run(actions.release_project, project)
    if "breaker" in held:
        return Told(t("A probe of {project} goes out now; once it is taken, the rest follows.", project=project))
    if "brake" in held:
        again = t("Sending had not stopped. What failed while it was on can be sent again as dead letters.")
        return Told(t("The brake on disabling tokens of {project} is off.", project=project), again)
    if held:
        return Told(t("{project} sends at its full rate again.", project=project))
    return Told(t("Nothing held {project} up.", project=project))


def _stream(given: Given) -> tuple[str, str | None]:
    event_type = given.text("type", 100)
    if not event_type:
        raise Problem(400, t("Which type of events?"))
    return event_type, given.text("origin", 200) or None


async def _held(request: Request, given: Given) -> tuple[str, str | None, list[dict[str, Any]]]:
    event_type, origin = _stream(given)
    rows = await threads_of(request).run(fleet.held)
    fitting = [row for row in rows if row["event_type"] == event_type and origin in (None, row["origin"])]
    return event_type, origin, fitting


async def _ask_release_events(request: Request, given: Given) -> Question:
    event_type, origin, rows = await _held(request, given)
    total = sum(row["events"] for row in rows)
    return Question(
        t("Send what is held of {type}?", type=event_type),
        t("Send {events}", events=count(total, "event")),
        [
            [el("p", row["reason"]) for row in rows],
            el("p", t("Everything that the runaway brake holds of it is sent; it judges anew what comes then.")),
        ],
        kept={"type": event_type, "origin": origin or ""},
        possible=total > 0,
    )


async def _release_events(request: Request, given: Given) -> Told:
    event_type, origin = _stream(given)
    done = await at_length(request, actions.release_events, event_type, origin)
    return Told(t("{events} of {type} will be sent.", events=count(done["events"], "event"), type=event_type))


async def _ask_drop_events(request: Request, given: Given) -> Question:
    event_type, origin, rows = await _held(request, given)
    total = sum(row["events"] for row in rows)
    return Question(
        t("End what is held of {type} without sending it?", type=event_type),
        t("End {events}", events=count(total, "event")),
        [
            [el("p", row["reason"]) for row in rows],
            el("p", t("Nothing of it is sent any more. This cannot be taken back.")),
        ],
        kept={"type": event_type, "origin": origin or ""},
        grave=True,
        possible=total > 0,
    )


async def _drop_events(request: Request, given: Given) -> Told:
    event_type, origin = _stream(given)
    done = await at_length(request, actions.release_events, event_type, origin, drop=True)
    return Told(t("{events} of {type} were ended unsent.", events=count(done["events"], "event"), type=event_type))


def _event(given: Given) -> int:
    event = given.id("event")
    if event is None:
        raise Problem(400, t("Which event?"))
    return event


async def _ask_cancel(request: Request, given: Given) -> Question:
    event, threads = _event(given), threads_of(request)
    found = await threads.run_in_transaction(app_verbs.find, event, None)
    late = await threads.run(events.too_late_to_stop, event)
    left = sum(found.counts.get(name, 0) for name in ("pending", "retryable"))
    return Question(
        t("Cancel event {event}?", event=event),
        t("Cancel it"),
        [
            el("p", el("strong", found.event.get("title") or found.event["key"])),
            el("p", t("{n} of it not sent yet will never be sent.", n=count(left, "push", "pushes"))) if left else None,
            el("p", t("{n} of it sent before stay sent.", n=count(late["sent"], "push", "pushes")))
            if late["sent"]
            else None,
            el("p", t("Nothing of it is sent any more. This cannot be taken back.")),
        ],
        _reason(t("What was wrong with it")),
        {"event": event},
        f"/dashboard/events/{event}",
        grave=True,
    )


async def _cancel(request: Request, given: Given) -> Told:
    event = _event(given)
    done = await threads_of(request).run(app_verbs.cancel_as_operator, event, given.text("reason"), None)
    late = await threads_of(request).run(events.too_late_to_stop, event)
    told = [
        el("p", t("{n} of it sent before stay sent.", n=count(late["sent"], "push", "pushes")))
        if late["sent"]
        else None,
        el("p", t("{n} of it being sent right now may still go out.", n=count(late["claimed"], "push", "pushes")))
        if late["claimed"]
        else None,
    ]
    return Told(_cancelled(done, event), told, f"/dashboard/events/{event}")


def _cancelled(done: app_verbs.Cancelled, event: int) -> str:
    if done.cancelled and not done.withdrawn:
        return t("Event {event} is cancelled; nothing of it was left to send.", event=event)
    if done.cancelled:
        return t("Event {event} is cancelled.", event=event)
    if done.found.event["state"] == "fanned":
        return t("Event {event} was finished already: nothing of it was withdrawn.", event=event)
    return t("Event {event} had ended before.", event=event)


async def _ask_retry(_request: Request, given: Given) -> Question:
    reject, source = given.id("reject"), given.text("source", 100)
    if reject is None and not source:
        raise Problem(400, t("Which rejects?"))
    title = (
        t("Try reject {id} again?", id=reject)
        if reject is not None
        else t("Try all rejects of {source} again?", source=source)
    )
    told = t("The next pass of the source looks at what it offered once more.")
    kept = {"reject": reject if reject is not None else "", "source": source}
    return Question(title, t("Try again"), told, kept=kept, back="/dashboard/sources")


async def _retry(request: Request, given: Given) -> Told:
    reject, source = given.id("reject"), given.text("source", 100)
    if reject is None and not source:
        raise Problem(400, t("Which rejects?"))
    tried = await threads_of(request).run(actions.retry_rejects, source=source or None, reject_id=reject)
    title = t("{rejects} will be tried again by the next pass.", rejects=count(tried, "reject"))
    return Told(title, back="/dashboard/sources")


DEEDS = {
    "pause": Deed(_ask_pause, _pause),
    "resume": Deed(_ask_resume, _resume),
    "run": Deed(_ask_run, _run),
    "release": Deed(_ask_release_project, _release_project),
    "send-held": Deed(_ask_release_events, _release_events),
    "drop-held": Deed(_ask_drop_events, _drop_events),
    "cancel": Deed(_ask_cancel, _cancel),
    "retry": Deed(_ask_retry, _retry),
}
