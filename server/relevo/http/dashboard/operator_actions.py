"""Actions of operators: pause, resume and run cycles, release held events, cancel events, try rejects again.

Two pages are around every action: the question before it, and its result.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.app import service
from relevo.core.i18n import N_, ngettext
from relevo.core.i18n import gettext as _
from relevo.http.dashboard import deliveries, proof, test_push
from relevo.http.dashboard.actions import Action, FormInput, Question, Result
from relevo.http.dashboard.formats import address
from relevo.http.dashboard.page import SOURCES, SYSTEM, Page, fields_of, render
from relevo.http.database_threads import app_of, long_work_of, threads_of
from relevo.http.guard import call
from relevo.http.problems import Problem
from relevo.operators import actions, events, fleet, reasons
from relevo.verbs import events as verbs

router = APIRouter(route_class=Page, include_in_schema=False)


def _cycle(request: Request, form: FormInput) -> tuple[str, tuple[str, str]]:
    """Return a cycle as it is written, and its name and source; one that is not there is not found."""
    written = form.text("cycle", 200)
    return written, app_of(request).switch_of(written)


async def _ask_pause(request: Request, form: FormInput) -> Question:
    cycle, _switch = _cycle(request, form)
    told = _("It stops in the whole fleet until an operator resumes it. A run that has begun finishes.")
    hint = _("Shown to everybody who finds the cycle paused")
    return Question(_("Pause %(cycle)s?", cycle=cycle), _("Pause"), [told], hint, {"cycle": cycle}, SYSTEM)


async def _pause(request: Request, form: FormInput) -> Result:
    cycle, (name, source) = _cycle(request, form)
    before = await threads_of(request).run(actions.pause, name, form.text("reason"), source=source)
    if before:
        since = _("Since %(since)s, because: %(why)s", since=before["paused_since"], why=before["paused_because"])
        return Result(_("%(cycle)s was already paused.", cycle=cycle), [since], SYSTEM)
    again = _("Resume it on the page System.")
    return Result(_("%(cycle)s is paused in the whole fleet.", cycle=cycle), [again], SYSTEM)


async def _ask_resume(request: Request, form: FormInput) -> Question:
    cycle, _switch = _cycle(request, form)
    told = _("It then runs again in the whole fleet, by its schedule.")
    title = _("Resume %(cycle)s?", cycle=cycle)
    return Question(title, _("Resume"), [told], hidden={"cycle": cycle}, back=SYSTEM)


async def _resume(request: Request, form: FormInput) -> Result:
    cycle, (name, source) = _cycle(request, form)
    if await threads_of(request).run(actions.resume, name, source=source):
        return Result(_("%(cycle)s was resumed.", cycle=cycle), back=SYSTEM)
    return Result(_("%(cycle)s was not paused; nothing was changed.", cycle=cycle), back=SYSTEM)


async def _ask_run(request: Request, form: FormInput) -> Question:
    cycle, _switch = _cycle(request, form)
    told = _(
        "It runs once in this process, under the same lock as by its schedule, and at most as long as a tick may take."
    )
    return Question(_("Run %(cycle)s now?", cycle=cycle), _("Run now"), [told], hidden={"cycle": cycle}, back=SYSTEM)


async def _run(request: Request, form: FormInput) -> Result:
    cycle, _switch = _cycle(request, form)
    reports = await long_work_of(request).run(lambda _database: service.run_beside(app_of(request), cycle))
    good = all(report.outcome != "failed" for report in reports)
    title = _("%(cycle)s ran.", cycle=cycle) if good else _("%(cycle)s ran and failed.", cycle=cycle)
    back = address("/dashboard/runs", cycle=cycle)
    return Result(title, back=back, good=good, template="run_result.html", context={"reports": reports})


async def _ask_release_project(request: Request, form: FormInput) -> Question:
    project = form.text("project", 250)
    known = {row["project"]: row for row in await threads_of(request).run(fleet.projects)}
    if project not in known:
        raise Problem(404, _("There is no project %(project)s.", project=project))
    told = [
        _(
            "Its breaker sends a probe at once, and its brake is released. "
            "If the fault is still there, they stop it again."
        )
    ]
    why = known[project]["breaker_reason"] if known[project]["breaker"] != "closed" else None
    if why:
        told.insert(0, _("Its breaker opened because: %(why)s", why=reasons.because(why)))
    title = _("Release %(project)s?", project=project)
    return Question(title, _("Release"), told, hidden={"project": project})


async def _release_project(request: Request, form: FormInput) -> Result:
    project = form.text("project", 250)
    held = await threads_of(request).run(actions.release_project, project)
    if "breaker" in held:
        return Result(
            _(
                "A probe of %(project)s goes out now. Once its push service takes it, the other pushes follow.",
                project=project,
            )
        )
    if "brake" in held:
        again = _("Sending had not stopped. Pushes that failed meanwhile can be sent again on the page Dead letters.")
        return Result(_("The brake on disabling tokens of %(project)s was released.", project=project), [again])
    if held:
        return Result(_("%(project)s sends at its full rate again.", project=project))
    return Result(_("%(project)s was not stopped; nothing was changed.", project=project))


def _stream(form: FormInput) -> tuple[str, str | None]:
    event_type = form.text("type", 100)
    if not event_type:
        raise Problem(400, _("No event type is named."))
    return event_type, form.text("origin", 200) or None


async def _ask_release_events(request: Request, form: FormInput, *, drop: bool = False) -> Question:
    event_type, origin = _stream(form)
    rows = await threads_of(request).run(fleet.held)
    held = [row for row in rows if row["event_type"] == event_type and origin in (None, row["origin"])]
    total = sum(row["events"] for row in held)
    if drop:
        title = _("End the held events of %(type)s without sending them?", type=event_type)
        button = _("End %(events)s", events=_events(total))
        told = _("Nothing more of it will be sent. This cannot be undone.")
    else:
        title = _("Send the held events of %(type)s?", type=event_type)
        button = _("Send %(events)s", events=_events(total))
        told = _(
            "All events of this type that the runaway brake holds are sent. The brake checks later events as before."
        )
    hidden = {"type": event_type, "origin": origin or ""}
    return Question(
        title, button, [*(row["reason"] for row in held), told], hidden=hidden, grave=drop, possible=total > 0
    )


async def _release_events(request: Request, form: FormInput, *, drop: bool = False) -> Result:
    event_type, origin = _stream(form)
    done = await long_work_of(request).run(actions.release_events, event_type, origin, drop=drop)
    told = N_("%(events)s of %(type)s were ended unsent.") if drop else N_("%(events)s of %(type)s will be sent.")
    return Result(_(told, events=_events(done["events"]), type=event_type))


def _events(n: int) -> str:
    return ngettext("%(n)s event", "%(n)s events", n)


def _event(form: FormInput) -> int:
    event = form.id("event")
    if event is None:
        raise Problem(400, _("No event is named."))
    return event


async def _ask_cancel(request: Request, form: FormInput) -> Question:
    event = _event(form)
    found = await call(request, verbs.find, event)
    late = await threads_of(request).run(events.too_late_to_stop, event)
    left = sum(found.deliveries.get(name, 0) for name in ("pending", "retryable"))
    told = [
        _("%(n)s not sent yet will never be sent.", n=_pushes(left)) if left else "",
        _("%(n)s already sent stay sent.", n=_pushes(late["sent"])) if late["sent"] else "",
        _("Nothing more of it will be sent. This cannot be undone."),
    ]
    return Question(
        _("Cancel event %(event)s?", event=event),
        _("Cancel event"),
        list(filter(None, told)),
        _("For example: wrong link in the text"),
        {"event": event},
        f"/dashboard/events/{event}",
        grave=True,
        template="cancel_question.html",
        context={"subject": found.raw.get("title") or found.key},
    )


async def _cancel(request: Request, form: FormInput) -> Result:
    event = _event(form)
    done = await call(request, verbs.cancel, event, form.text("reason"))
    late = await threads_of(request).run(events.too_late_to_stop, event)
    sent, claimed = late["sent"], late["claimed"]
    told = [
        _("%(n)s already sent stay sent.", n=_pushes(sent)) if sent else "",
        _("%(n)s being sent right now may still go out.", n=_pushes(claimed)) if claimed else "",
    ]
    return Result(_cancelled(done, event), list(filter(None, told)), f"/dashboard/events/{event}")


def _pushes(n: int) -> str:
    return ngettext("%(n)s push", "%(n)s pushes", n)


def _cancelled(done: verbs.Cancelled, event: int) -> str:
    if done.cancelled and not done.withdrawn:
        return _("Event %(event)s is cancelled; no push was left to send.", event=event)
    if done.cancelled:
        return _("Event %(event)s is cancelled.", event=event)
    if done.found.state == "fanned":
        return _("Event %(event)s had already finished: no push was withdrawn.", event=event)
    return _("Event %(event)s had already ended.", event=event)


def _rejects(form: FormInput) -> tuple[int | None, str]:
    """Return the number of a reject, or the source of several."""
    reject, source = form.id("reject"), form.text("source", 100)
    if reject is None and not source:
        raise Problem(400, _("No reject or source is named."))
    return reject, source


async def _ask_retry(_request: Request, form: FormInput) -> Question:
    reject, source = _rejects(form)
    title = _("Try all rejects of %(source)s again?", source=source)
    if reject is not None:
        title = _("Try reject %(id)s again?", id=reject)
    told = _("The next pass of the source tries again.")
    hidden = {"reject": reject or "", "source": source}
    return Question(title, _("Try again"), [told], hidden=hidden, back=SOURCES)


async def _retry(request: Request, form: FormInput) -> Result:
    reject, source = _rejects(form)
    tried = await threads_of(request).run(actions.retry_rejects, source=source or None, reject_id=reject)
    rejects = ngettext("%(n)s reject", "%(n)s rejects", tried)
    return Result(_("%(rejects)s will be tried again by the next pass.", rejects=rejects), back=SOURCES)


ACTIONS = {
    **deliveries.ACTIONS,
    **test_push.ACTIONS,
    "pause": Action(_ask_pause, _pause),
    "resume": Action(_ask_resume, _resume),
    "run": Action(_ask_run, _run),
    "release": Action(_ask_release_project, _release_project, grave=True),
    "send-held": Action(_ask_release_events, _release_events, grave=True),
    "drop-held": Action(partial(_ask_release_events, drop=True), partial(_release_events, drop=True), grave=True),
    "cancel": Action(_ask_cancel, _cancel, grave=True),
    "retry": Action(_ask_retry, _retry),
}
Verb = Annotated[str, Path(max_length=40)]


def _action(verb: str) -> Action:
    if verb not in ACTIONS:
        raise Problem(404, _("There is no action at this address."))
    return ACTIONS[verb]


@router.get("/dashboard/actions/{verb}")
async def ask(request: Request, verb: Verb) -> Response:
    """Ask before something is done."""
    question = await _action(verb).ask(request, FormInput(request.query_params))
    if isinstance(question, Response):
        return question
    return render(request, question.template, live=False, verb=verb, question=question, **question.context)


@router.post("/dashboard/actions/{verb}")
async def do(request: Request, verb: Verb) -> Response:
    """Do it, and show what was done; ask for the token again before what is grave."""
    action, fields = _action(verb), await fields_of(request)
    if action.grave and (asked := await proof.ask(request, fields)) is not None:
        return asked
    result = await action.do(request, FormInput(fields))
    if isinstance(result, Response):
        return result
    return render(request, result.template, live=False, result=result, **result.context)
