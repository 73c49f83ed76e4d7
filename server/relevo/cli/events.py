"""Commands about events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer
from psycopg import errors as pg

from relevo.cli.common import (
    MOST_IDS,
    AsJson,
    Limit,
    as_written,
    by_status,
    coloured,
    load_settings,
    open_database,
    open_lists,
    out,
    prepared_database,
    print_json,
    print_moments,
    print_rows,
    print_wrapped,
    printable,
    read_installation,
    read_time,
    say,
    several,
    shortened,
    tell_more,
)
from relevo.client import values, verbs
from relevo.config import Settings
from relevo.core.errors import EventConflictError, NotFoundError, RelevoError, UsageError
from relevo.core.statuses import EVENT_STATES
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.operators import events
from relevo.operators.audience import are_elsewhere, unknown_installations, unknown_owners
from relevo.operators.events import TOLD_APART
from relevo.operators.reading import of_this_version
from relevo.verbs import events as event_verbs
from relevo.verbs.callers import operator

cli = typer.Typer()

_To = Annotated[
    list[UUID] | None,
    typer.Option(parser=read_installation, metavar="UUID", help="To this installation (repeatable)."),
]
_Owner = Annotated[list[str] | None, typer.Option(help="To this owner's phones (repeatable).")]
_Topic = Annotated[list[str] | None, typer.Option(help="To phones that asked for this topic (repeatable).")]
_Where = Annotated[str | None, typer.Option(help="To phones with these attributes alone, a JSON object.")]
_Everyone = Annotated[bool, typer.Option("--everyone", help="To everyone.")]
_Project = Annotated[str | None, typer.Option("--project", help="Only for phones of this project.")]
_Category = Annotated[
    str | None, typer.Option(help="The category. Phones and owners that opted out of it get nothing.")
]

_COMPARED = {
    True: "and has the same content",
    False: "and has other content; nothing was changed",
    None: "and its content is not kept any more; nothing was changed",
}

_NOBODY = {
    "owners_unknown": "unknown owner, no phone belongs to the named owners",
    "owners_elsewhere": "its owners have phones in other projects only; give the event a project, or run `relevo owner "
    "names shared`",
    "owners_silent": "no phone of its owners may receive it",
    "installations_unknown": "no phone that it names is registered",
    "installations_silent": "no phone that it names may receive it",
    "everyone_unknown": "no phone is registered yet",
    "everyone_silent": "no phone may receive it",
    "matching": "no phone's preferences match",
    "attributes": "no phone has the attributes that it is for",
    "not_then": "no targeted phone could receive it then",
}


@cli.command()
def enqueue(  # noqa: PLR0917 typer options
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="The event's type.")],
    key: Annotated[str, typer.Argument(help="The event's key.")],
    title: Annotated[str, typer.Option(help="The title of the push. A push without title and body is silent.")] = "",
    body: Annotated[str, typer.Option(help="The body of the push.")] = "",
    to: _To = None,
    owner: _Owner = None,
    topic: _Topic = None,
    where: _Where = None,
    everyone: _Everyone = False,
    category: _Category = None,
    at: Annotated[
        datetime | None,
        typer.Option(parser=read_time, metavar="TIME", help="When, such as 2026-11-17T09:30 (UTC). Default: now."),
    ] = None,
    ttl_s: Annotated[int | None, typer.Option(min=1, max=2_419_200, help="Seconds until the event expires.")] = None,
    urgent: Annotated[bool, typer.Option("--urgent", help="Send it in the urgent lane, ahead of the others.")] = False,
    data: Annotated[str, typer.Option(help="Data for the app, as a JSON object.")] = "{}",
    arguments: Annotated[
        str | None, typer.Option(help="A JSON object for the texts of its type, instead of title and body.")
    ] = None,
    collapse: Annotated[str | None, typer.Option(help="Replace the former event with this collapse key.")] = None,
    batch: Annotated[
        str | None, typer.Option(help="A batch's key, with a title and body for several events: a JSON object.")
    ] = None,
    project: _Project = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not fail if the event exists with other content.")] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue an event for given installations, owners, phones that asked for a topic, or everyone.

    If the type and key exist already, nothing changes; with other content the command fails.

    \b
    relevo enqueue order.shipped 17 --title "On its way" --owner user-7
    relevo enqueue notice 2026-11 --title "New terms" --everyone
    """
    settings = load_settings()
    event = values.Event(
        event_type,
        key,
        title,
        body,
        data=_json_object(data),
        audience=_audience(to or (), owner or (), topic or (), where, everyone=everyone),
        arguments=None if arguments is None else _json_object(arguments, "--arguments"),
        category=category,
        lane="urgent" if urgent else None,
        scheduled_at=at,
        ttl_s=ttl_s,
        collapse=collapse,
        batch=None if batch is None else _json_object(batch, "--batch"),
        project=project,
    )
    done = _enqueue_checked(settings, event, to or (), "keep" if keep else "refuse")
    told = f"Event {done.event_id} has this type and key already, {_COMPARED[done.same_content]}."
    made = f"Enqueued as event {done.event_id}. `relevo event {done.event_id}` shows its timeline."
    say(made if done.created else told, asdict(done), as_json=as_json)


def _enqueue_checked(
    settings: Settings, event: values.Event, to: Sequence[UUID], on_conflict: values.OnConflict
) -> values.Enqueued:
    """Enqueue an event whose phones are all known; a refusal says what to do on the command line."""
    with open_database(settings) as database:
        with suppress(pg.InsufficientPrivilege):  # an app's role may enqueue, and look at nothing
            migrate.prepare(database)
        if unknown := unknown_installations(database, to):
            raise UsageError(f"There is no installation {unknown[0]}.", hint="`relevo installations` lists them.")
        try:
            return _enqueue(database, event, on_conflict)
        except EventConflictError as error:
            hint = "Use another key for another event; --keep keeps the existing event."
            raise RelevoError(error.message, hint=hint) from error


def _enqueue(database: Database, event: values.Event, on_conflict: values.OnConflict) -> values.Enqueued:
    """Enqueue an event and have that recorded; an app's role, which may not write there, only enqueues."""
    given, caller = [verbs.event_json(event, on_conflict)], operator(database)
    try:
        [done] = event_verbs.enqueue(caller, given, key=event.key)
    except pg.InsufficientPrivilege:
        [done] = event_verbs.enqueue(caller, given, recorded=False)
    return done


@cli.command()
def preview(  # noqa: PLR0917 typer options
    to: _To = None,
    owner: _Owner = None,
    topic: _Topic = None,
    where: _Where = None,
    everyone: _Everyone = False,
    category: _Category = None,
    why: Annotated[
        UUID | None,
        typer.Option(parser=read_installation, metavar="UUID", help="Explain whether this installation gets it."),
    ] = None,
    data: Annotated[
        str,
        typer.Option(help="A JSON object for the app; the preview warns of data that some phones would not get."),
    ] = "{}",
    push: Annotated[
        str,
        typer.Option(help="Further fields of the push, as a JSON object; the preview warns likewise."),
    ] = "{}",
    project: _Project = None,
    as_json: AsJson = False,
) -> None:
    """Show how many installations an event would reach, and some of them, without sending.

    \b
    relevo preview --owner user-7
    relevo preview --where '{"plan": "pro"}'
    relevo preview --everyone --push '{"subtitle": "Today"}'
    relevo preview --topic team-7 --why 5f0c9a52-…
    """
    event = values.Event(
        "preview",
        "preview",
        "preview",
        data=_json_object(data),
        push=_json_object(push, "--push"),
        audience=_audience(to or (), owner or (), topic or (), where, everyone=everyone),
        category=category,
        project=project,
    )
    with open_database() as database:
        if why is not None:
            with database.connection() as connection:
                told = verbs.explain(connection, event, why)
            shown = as_written(f"{'Yes' if told.gets_it else 'No'}: {told.reason}")
            print_json([told.raw]) if as_json else out.print(shown)
            return
        found = event_verbs.preview(operator(database), verbs.event_json(event), sample=10)
        strangers = unknown_owners(database, owner or ())
        elsewhere = bool(owner) and not found.count and are_elsewhere(database, owner or (), project)
    if as_json:
        print_json([{**found.raw, "warnings": found.warnings}])
    else:
        _print_preview(found, strangers, has_topics=bool(topic))
        if elsewhere:
            out.print(f"  nobody: {as_written(_NOBODY['owners_elsewhere'])}")


def _later(found: values.Preview) -> Iterator[str]:
    """Print how many phones would not get it at once, and why."""
    if found.digested:
        yield f"{several(found.digested, 'more installation')} would be told in a digest."
    if found.waiting:
        yield f"{_of_them(found.waiting, 'has', 'have')} quiet hours then, and would get it later."
    if found.capped:
        yield f"{_of_them(found.capped)} sent as much as caps allow, and would find it in the inbox."
    if found.to_digest:
        yield f"{_of_them(found.to_digest)} sent as much as caps allow: told in the next digest."
    if found.batched:
        yield f"{found.batched:,} of them would be told together with others of its kind, for its type gathers."


def _of_them(count: int, one: str = "was", many: str = "were") -> str:
    return f"{count:,} of them {one if count == 1 else many}"


def _print_preview(found: values.Preview, strangers: Sequence[str], *, has_topics: bool) -> None:
    """Print whom an event would reach, and what to know before it is sent."""
    out.print(f"It would reach {_estimate(found)}.")
    for line in _later(found):
        out.print(f"  {line}")
    if has_topics:
        out.print("  With topics it goes only to phones that asked for one of them.")
    for each in found.raw["sample"]:
        out.print(
            f"  {each['installation_id']}  {as_written(each['project'])}  {as_written(each['owner'] or '')}".rstrip()
        )
    for each in found.warnings:
        out.print(f"  {as_written(each)}")
    for each in found.unknown_installations:
        out.print(f"  {each} is not registered")
    for each in strangers:
        out.print(f"  {as_written(each)} is not known: no installation has this owner")


def _estimate(found: values.Preview) -> str:
    """Write how many a preview found; of an estimate also its bounds."""
    told = several(found.count, "installation")
    return told if found.exact else f"about {told}, between {found.at_least:,} and {found.at_most:,}"


def _audience(
    to: Sequence[UUID], owners: Sequence[str], topics: Sequence[str], where: str | None, *, everyone: bool
) -> values.Audience:
    """Return the one audience that was given; none is not everyone."""
    given = [bool(to), bool(owners), bool(topics), everyone]
    if sum(given) != 1 and (where is None or any(given)):
        raise UsageError(
            "An event needs exactly one audience.",
            hint="Name it by --to INSTALLATION, --owner OWNER, --topic TOPIC, --where ATTRIBUTES or --everyone.",
        )
    asked = None if where is None else _json_object(where, "--where")
    if to:
        return values.Phones(*to, where=asked)
    if owners:
        return values.Owners(*owners, where=asked)
    return values.Topic(*topics, where=asked) if topics else values.Everyone(where=asked)


_EXAMPLE = '{"badge": 3}'
_EXAMPLES = {"--data": '{"screen": "inbox"}', "--where": '{"plan": "pro"}'}


def _json_object(text: str, option: str = "--data") -> dict[str, Any]:
    example = f"Write it like {_EXAMPLES.get(option, _EXAMPLE)}."
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} is not JSON: {error}.", hint=example) from error
    if not isinstance(given, dict):
        raise UsageError(f"{option} must be a JSON object.", hint=example)
    return given


EventWord = Annotated[str, typer.Argument(metavar="EVENT", help="The event's number, or its type followed by its key.")]
KeyWord = Annotated[str | None, typer.Argument(metavar="KEY", help="The event's key, if EVENT is a type.")]
OfProject = Annotated[str | None, typer.Option("--project", help="The project of the event, with a key.")]


def _find(database: Database, word: str, key: str | None, project: str | None) -> int:
    """Return the number of the event that is meant: by its number, or by its type and key."""
    if key is None and not (word.isascii() and word.isdecimal() and 0 < int(word[:20]) <= MOST_IDS):
        raise UsageError(
            f"{printable(word[:100])} is not an event id.",
            hint="Give its id, as `relevo events` lists it, or its type and key: "
            "`relevo event order.shipped order-17`.",
        )
    caller = operator(database)
    try:
        if key is None:
            with of_this_version():
                return event_verbs.find(caller, int(word)).id
        return event_verbs.find_by_key(caller, word, key, project).id
    except NotFoundError as error:
        what = (
            f"event {word}" if key is None else f"event of type {printable(word[:100])} with key {printable(key[:100])}"
        )
        raise UsageError(f"There is no {what}.", hint="`relevo events` lists them.") from error


@cli.command()
def cancel(
    event: EventWord,
    key: KeyWord = None,
    reason: Annotated[str, typer.Option(help="The reason, for the records.")] = "",
    project: OfProject = None,
    as_json: AsJson = False,
) -> None:
    """End an event, so that no further push of it is sent. An event with nothing left to send, confirm or redrive
    stays as it is.

    \b
    relevo cancel 17 --reason "a slip"
    relevo cancel order.shipped order-17
    """
    with prepared_database() as database:
        event_id = _find(database, event, key, project)
        done = event_verbs.cancel(operator(database), event_id, reason)
        left = events.too_late_to_stop(database, event_id)
    if as_json:
        print_json([{"event_id": event_id, "cancelled": done.cancelled, "withdrawn": done.withdrawn, **left}])
        return
    if done.cancelled:
        out.print(f"Event {event_id} is cancelled{'' if done.withdrawn else '; no push was left to send'}.")
    elif done.found.state == "fanned":
        out.print(f"Event {event_id} had already finished: no push was withdrawn.")
    else:
        out.print(f"Event {event_id} had already ended.")
    if left["sent"]:
        sent = several(left["sent"], "push of it was already sent and stays", "pushes of it were already sent and stay")
        out.print(f"{sent} sent.")
    if left["claimed"]:
        sending = several(left["claimed"], "push of it is", "pushes of it are")
        out.print(f"{sending} being sent right now; pushes that have not begun are not sent any more.")


@cli.command("events", epilog="Example: relevo events --state held --json")
def list_events(
    event_type: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only this state: waiting, held, fanning, fanned (or one of sending, sent, finished), cancelled, "
            "completed."
        ),
    ] = None,
    before: Annotated[
        int | None, typer.Option(min=1, max=MOST_IDS, help="Where to continue; the last line of a page names it.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show events, newest first."""
    states = tuple(dict.fromkeys((*EVENT_STATES, *TOLD_APART)))
    if state is not None and state not in states:
        raise UsageError(f"There is no state {state}.", hint=f"Known: {', '.join(states)}.")
    with open_lists() as lists:
        page = lists.read(events.latest, event_type=event_type, state=state, before=before, limit=limit)
    columns = {
        "event": lambda row: str(row["id"]),
        **(
            {"project": lambda row: as_written(row["project"] or "")}
            if any(row["project"] for row in page.rows)
            else {}
        ),
        "type": lambda row: as_written(row["event_type"]),
        "key": lambda row: as_written(shortened(row["event_key"])),
        "state": lambda row: coloured(row["progress"]),
        "created (UTC)": lambda row: f"{row['created_at'].astimezone(UTC):%m-%d %H:%M:%S}",
        "deliveries": lambda row: str(row["deliveries_created"]),
        "text": lambda row: as_written(shortened(row["body"] or row["title"])),
    }
    none = "No event matches." if event_type or state or before else "No events yet."
    print_rows(columns, page.rows, none, wide=("key", "text"), as_json=as_json)
    tell_more(page, "events", as_json=as_json)


@cli.command("event")
def show_event(event: EventWord, key: KeyWord = None, project: OfProject = None, as_json: AsJson = False) -> None:
    """Show what happened to one event as a timeline.

    \b
    relevo event 17
    relevo event order.shipped order-17
    """
    with open_database() as database:
        event_id = _find(database, event, key, project)
        seen = events.story(database, event_id)
    if seen is None:
        raise UsageError(f"There is no event {event_id}.", hint="`relevo events` lists them.")
    told = seen.status.raw
    if as_json:
        moments = [{"at": each.at, "what": each.what, "detail": each.detail} for each in seen.moments]
        more = {"moments": moments, "errors": seen.errors, "waits": seen.why_it_waits}
        nobody = asdict(seen.nobody) if seen.nobody else None
        trace = {"trace_id": seen.event["trace_id"]}
        print_json([{"event": told, "progress": seen.status.progress, **more, "nobody": nobody, **trace}])
        return
    out.print(f"[bold]{as_written(told['title'])}[/]  {as_written(told['body'])}")
    out.print(f"State: {coloured(seen.status.progress)}")
    out.print(f"For: {as_written(_for_whom(seen))}")
    if seen.event["trace_id"]:
        out.print(f"Trace: {seen.event['trace_id']}")
    print_moments((each.at, each.what, each.detail or "") for each in seen.moments)
    out.print(f"Deliveries: {by_status(told['deliveries']) or _none(seen)}")
    if any(told["deliveries"].values()):
        print_wrapped("Phones:", f"`relevo deliveries --event {event_id}` lists each with its state.")
    for wait in seen.why_it_waits:
        out.print(f"  waiting: {as_written(wait)}")
    for row, again in zip(seen.errors, seen.tried_again, strict=True):
        example = as_written(shortened(row["example"] or ""))
        said = f": {example}" if example else ""
        out.print(
            f"  {row['deliveries']} {row['status']} with {as_written(row['last_error_code'])}{as_written(again)}{said}"
        )


def _for_whom(seen: events.Story) -> str:
    """Return the audience of an event, and its project, if it names one."""
    project = seen.event["project"]
    return f"{_audience_of(seen)}{f', in project {project}' if project else ''}"


def _audience_of(seen: events.Story) -> str:
    """Return the audience of an event."""
    event, whole = seen.event, _whole_audience_of(seen)
    if not event["match_where"]:
        return whole
    named = f"with the attributes {shortened(json.dumps(event['match_where'], ensure_ascii=False))}"
    return f"phones {named}" if event["audience"] == "attributes" else f"{whole}, of these those {named}"


def _whole_audience_of(seen: events.Story) -> str:
    event = seen.event
    if event["owners"]:
        return f"the phones of {shortened(', '.join(event['owners']))}"
    if event["audience"] == "installations":
        return f"{several(event['named'], 'phone')} that it names"
    if event["audience"] == "matching":
        topics = ", ".join(event["match_topics"] or ())
        return f"phones whose preferences match{': ' if topics else ''}{shortened(topics)}"
    return "everyone"


def _none(seen: events.Story) -> str:
    """Print that there are no deliveries, and why if fan-out finished."""
    if seen.nobody is None:
        return "none"
    reasons = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in seen.nobody.reasons.items())
    return as_written(f"none: {_NOBODY[seen.nobody.why]}{f' ({reasons})' if reasons else ''}")
