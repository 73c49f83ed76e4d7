"""One phone, or one person with all phones: what they asked for, what they got, and why they did not get the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from relevo.client.values import Explanation
from relevo.http.dashboard import reasons
from relevo.http.dashboard.compose import HERE as COMPOSE
from relevo.http.dashboard.formats import ago, count, instant, number
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.labels import state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, facts, part
from relevo.http.dashboard.page import Page, is_operator, show, table
from relevo.http.dashboard.parts import (
    clipped,
    delivery_link,
    event_link,
    following,
    owner_link,
    owner_path,
    phone_link,
    phone_path,
    short,
)
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import events
from relevo.operators.phones import MOST_PHONES, Phones, Reason, Recent, explain, recent
from relevo.operators.phones import owner as read_owner
from relevo.operators.phones import phone as read_phone
from relevo.operators.reading import Row

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_IDS = 2**63 - 1
_ARRIVES = ("sent", "ok", "unconfirmed")
Before = Annotated[int | None, Query(ge=1, le=_MOST_IDS)]
Asked = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class Answer:
    """What became of the question why: the event that was meant, or those that may be, and the rule for each phone."""

    asked: str = ""
    event: Row | None = None
    choices: Sequence[Row] = ()
    reasons: Sequence[Reason] = ()


@router.get("/dashboard/installations/{installation_id}")
async def phone(request: Request, installation_id: UUID, event: Asked = "", before: Before = None) -> Response:
    """Show one phone."""
    seen = await threads_of(request).run(read_phone, installation_id, before=before)
    if seen is None:
        raise Problem(404, t("There is no phone {id}.", id=installation_id))
    answer = await _explained(request, event.strip(), [installation_id])
    path = phone_path(installation_id)
    body = [
        _phone(seen.rows[0], try_it=_try_it(request, phones=installation_id))
        if seen.rows
        else _forgotten(installation_id),
        _why(path, answer),
        part(t("Asks for"), _preferences(seen.preferences.get(installation_id, []))) if seen.rows else None,
        part(t("History"), _history(seen, path)),
    ]
    title = _named(seen.rows[0]) if seen.rows else t("Phone {id}", id=short(installation_id))
    return show(request, title, body, live=before is None and not event)


@router.get("/dashboard/owners/{owner:path}")
async def owner(
    request: Request, owner: Annotated[str, Path(max_length=200)], event: Asked = "", before: Before = None
) -> Response:
    """Show one person with all phones."""
    seen = await threads_of(request).run(read_owner, owner, before=before)
    if seen is None:
        raise Problem(404, t("There is no owner {name}.", name=clipped(owner, 60)))
    answer = await _explained(request, event.strip(), [row["installation_id"] for row in seen.rows])
    path = owner_path(owner)
    try_it = _try_it(request, owner=owner) if seen.rows else None
    told = count(len(seen.rows), "phone")
    if len(seen.rows) == MOST_PHONES:
        told = t("The newest {n} phones are shown.", n=number(MOST_PHONES))
    phones = [row["installation_id"] for row in seen.rows]
    latest = await threads_of(request).run(recent, phones) if before is None else []
    names = {row["installation_id"]: t("Phone {id}", id=number(place)) for place, row in enumerate(seen.rows, 1)}
    body = [
        el("section", el("h1", t("Owner"), " ", owner), el("p", told, class_="faint"), try_it, class_="card"),
        part(t("The latest events, and why they came or not"), _latest(latest, names)) if latest else None,
        _why(path, answer),
        [
            _phone(row, seen.preferences.get(row["installation_id"], []), name=names[row["installation_id"]])
            for row in seen.rows
        ],
        part(t("History"), _history(seen, path, names)),
    ]
    return show(request, f"{t('Owner')} {clipped(owner, 60)}", body, live=before is None and not event)


async def _explained(request: Request, asked: str, phones: Sequence[UUID]) -> Answer:
    """Find the event that was asked for, and ask for each phone why it gets it, or not."""
    if not asked:
        return Answer()
    threads = threads_of(request)
    found = await threads.run(events.find, asked)
    if len(found) != 1:
        return Answer(asked, choices=found)
    return Answer(asked, found[0], (), await threads.run(explain, found[0]["id"], phones))


def _try_it(request: Request, **whom: object) -> Markup | None:
    """Lead an operator to the form of a test push, filled in."""
    if not is_operator(request):
        return None
    return el("p", el("a", t("Send a test push…"), href=address(COMPOSE, **whom) + "#test", class_="button plain"))


def _named(row: Row) -> str:
    """Name a phone by its owner, if it has one."""
    if row["owner"]:
        return t("Phone of {owner}", owner=clipped(row["owner"], 60))
    return t("Phone {id}", id=short(row["installation_id"]))


def _phone(
    row: Row, preferences: Sequence[Row] | None = None, try_it: Markup | None = None, name: str | None = None
) -> Markup:
    """Tell what is known of a phone; with what it asks for, if that is given."""
    receives = state("on") if row["receives"] else state("off", "bad")
    why = None if row["receives"] else [" ", clipped(_sentence(reasons.not_allowed(row["why_not"])), 300)]
    own = preferences is not None
    told = facts(
        (t("Pushes"), [receives, why]),
        (
            t("Installation"),
            phone_link(row["installation_id"], str(row["installation_id"])) if own else str(row["installation_id"]),
        ),
        (t("Owner"), None if own else owner_link(row["owner"])),
        (t("Token"), _token(row)),
        (t("Project"), row["project"]),
        (t("Platform"), row["platform"] if row["platform"] != "unknown" else None),
        (t("Language"), row["locale"]),
        (t("Permission"), t(row["permission"]) if row["permission"] != "granted" else None),
        (t("Opted out of"), ", ".join(row["opt_outs"]) or None),
        (t("Registered"), ago(row["registered_at"], row["now"])),
        (t("Asks for"), _preferences(preferences) if preferences is not None else None),
    )
    return el("section", el("h2" if own else "h1", name or _named(row)), told, try_it, class_="card")


def _token(row: Row) -> Child:
    if row["token"] is None:
        return None
    return [el("code", row["token"]), " ", el("span", t("version {n}", n=row["token_version"]), class_="faint")]


def _sentence(told: str) -> str:
    return f"{told[:1].upper()}{told[1:].removesuffix('.')}." if told else ""


def _forgotten(installation_id: UUID) -> Markup:
    title = t("Phone {id}", id=short(installation_id))
    return el(
        "section", el("h1", title), el("p", t("This phone was forgotten; its history alone is left.")), class_="card"
    )


def _preferences(preferences: Sequence[Row]) -> Markup:
    """Write what a phone asks for, each preference in words."""
    if not preferences:
        told = t("Nothing: it has no preference, and gets only what is for everyone, for it or for its owner.")
        return el("p", told, class_="faint")
    return el("ul", [el("li", _preference(each)) for each in preferences], class_="wishes")


def _preference(row: Row) -> Child:
    asked = list(_wishes(row))
    told = "; ".join(asked) if asked else t("everything")
    off = [" ", state("off", "warn")] if not row["enabled"] else None
    return [el("strong", row["name"]), f": {told}", off]


def _wishes(row: Row) -> Iterator[str]:
    if row["topics"]:
        yield f"{t('topics')} {', '.join(row['topics'])}"
    if row["keywords"]:
        yield f"{t('with one of the words')} {', '.join(row['keywords'])}"
    for name, told in (("rubro_prefix", t("rubro")), ("tipo", t("type of tender")), ("region", t("region"))):
        if row[name] is not None:
            yield f"{told} {row[name]}"
    if row["monto_min"] is not None:
        yield f"{t('from')} {number(row['monto_min'])} {row['moneda']}"
    if row["monto_max"] is not None:
        yield f"{t('up to')} {number(row['monto_max'])} {row['moneda']}"


def _why(path: str, answer: Answer) -> Markup:
    """Write the question why, and its answer."""
    ask = el(
        "form",
        el("label", t("Event id or key"), for_="event"),
        el(
            "div",
            el("input", name="event", id="event", value=answer.asked, maxlength=300, required=True),
            el("button", t("Explain")),
            class_="row",
        ),
        method="get",
        action=f"{path}#why",
    )
    return part(t("Why did I (not) get this?"), ask, _answer(path, answer), id_="why")


def _answer(path: str, answer: Answer) -> Child:
    if not answer.asked:
        return None
    if answer.event is None and not answer.choices:
        return el("p", t("There is no event with this id or key."), class_="bad", role="status")
    if answer.event is None:
        choices = [
            el("li", el("a", clipped(f"{row['event_type']} {row['event_key']}"), href=f"{path}?event={row['id']}#why"))
            for row in answer.choices
        ]
        return [el("p", t("Several events fit; which one?"), role="status"), el("ul", choices)]
    title = clipped(answer.event["title"], 160) or None
    return [
        el("p", event_link(answer.event["id"], title)),
        el(
            "div",
            [_reason(each, answer) for each in answer.reasons] or t("This owner has no phone."),
            class_="answers",
            role="status",
        ),
    ]


def _reason(reason: Reason, answer: Answer) -> Markup:
    told, delivery = reason.told, reason.told.raw.get("delivery")
    rule = reasons.rule(told)
    named = [phone_link(reason.installation_id), " "] if len(answer.reasons) > 1 else None
    status = None
    if delivery:
        words = clipped(reasons.in_words(delivery["error_code"])) or reasons.meaning(delivery["status"])
        status = el(
            "p",
            delivery_link(delivery["id"], t("Delivery {id}", id=delivery["id"])),
            " ",
            state(delivery["status"]),
            " ",
            words,
        )
    verdict, kind = _verdict(told)
    late = reasons.came_afterwards(told, reason.changes)
    why = reasons.afterwards(reason.changes) if late and reason.changes else clipped(rule, 600)
    since = [] if late else reasons.changed_since(told, reason.changes)
    notes = [el("p", each, class_="faint") for each in since]
    return el("div", el("p", named, el("strong", verdict), " ", why), notes, status, class_=f"answer {kind}")


def _verdict(told: Explanation) -> tuple[str, str]:
    """Say in a word or two whether a phone got an event."""
    delivery = told.raw.get("delivery")
    if delivery and delivery["status"] in _ARRIVES:
        return t("Yes, it was sent."), "good"
    if delivery and delivery["status"] in ("pending", "retryable"):
        return t("Not yet."), "warn"
    if delivery and delivery["status"] == "unknown":
        return t("Nobody knows."), "warn"
    if delivery:
        return t("No: it was meant to, and did not."), "bad"
    return (t("It will get it."), "good") if told.gets_it else (t("No."), "bad")


def _latest(latest: Sequence[Recent], names: dict[UUID, str]) -> Markup:
    """Tell of each of the latest events whether a person got it, and why not."""
    told: list[list[Child]] = [
        [
            [
                event_link(each.event["id"], clipped(each.event["title"], 90) or None),
                el("div", clipped(each.event["body"], 90), class_="faint"),
            ],
            instant(each.event["created_at"]),
            [_briefly(reason, names, several=len(each.reasons) > 1) for reason in each.reasons],
        ]
        for each in latest
    ]
    heads = [t("Event"), t("Enqueued"), t("Did it come, and why?")]
    return table(heads, told, empty="", label=t("The latest events, and why they came or not"))


def _briefly(reason: Reason, names: dict[UUID, str], *, several: bool) -> Markup:
    """Say in a line whether a phone got an event, and by which rule, or what went wrong."""
    delivery = reason.told.raw.get("delivery")
    verdict, kind = _verdict(reason.told)
    why = reasons.rule(reason.told)
    if delivery and kind != "good":
        why = reasons.in_words(delivery["error_code"]) or reasons.meaning(delivery["status"])
    elif reasons.came_afterwards(reason.told, reason.changes) and reason.changes:
        why = reasons.afterwards(reason.changes)
    which = [phone_link(reason.installation_id, names.get(reason.installation_id)), ": "] if several else None
    return el("div", which, el("strong", verdict), " ", why if isinstance(why, Markup) else clipped(why, 300))


def _history(seen: Phones, path: str, names: dict[UUID, str] | None = None) -> list[Child]:
    rows = [_delivery(row, names) for row in seen.history]
    heads = [t("When"), *([t("Phone")] if names else []), t("Event"), t("State"), t("In words"), t("Delivery")]
    empty = t("Nothing was meant for it yet, or all of it was archived.")
    more = following(path, before=seen.next) if seen.next else None
    return [table(heads, rows, empty=empty, label=t("History")), more]


def _delivery(row: Row, names: dict[UUID, str] | None) -> list[Child]:
    return [
        instant(row["created_at"]),
        *([phone_link(row["installation_id"], names.get(row["installation_id"]))] if names else []),
        [
            event_link(row["event_id"], clipped(row["title"], 90) or None),
            el("div", clipped(row["body"]) or clipped(row["event_type"], 60), class_="faint"),
        ],
        state(row["status"]),
        clipped(reasons.briefly(row["status"], row["last_error_code"])),
        delivery_link(row["id"]),
    ]
