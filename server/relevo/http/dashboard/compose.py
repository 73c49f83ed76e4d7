"""Compose: whom an event would reach, and a test push to chosen phones that tells what became of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.client import verbs
from relevo.client.values import Event, Explanation, Preview
from relevo.core.errors import InvalidInputError
from relevo.http.dashboard import reasons
from relevo.http.dashboard.acting import PLACE, Deed, Given, Question, Told
from relevo.http.dashboard.formats import count, number, sentence
from relevo.http.dashboard.html import Child, Markup, el, text
from relevo.http.dashboard.i18n import translated as said
from relevo.http.dashboard.labels import badge, state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, area, box, choice, part
from relevo.http.dashboard.page import Page, is_operator, show, table
from relevo.http.dashboard.parts import clipped, event_link, phone_link
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import audience, test_pushes
from relevo.operators.audience import LeftOut
from relevo.operators.phones import installations, owners_of
from relevo.operators.test_pushes import MOST_PHONES, Answer, Trial

router = APIRouter(route_class=Page, include_in_schema=False)
HERE = "/dashboard/compose"
_SAMPLE = 10
_LISTS = ("rubros",)
_WORDS = ("region", "tipo", "moneda", "text")
_GOOD = ("ok", "unconfirmed", "sent")


@router.get("/dashboard/compose")
async def compose(request: Request) -> Response:
    """Show whom an event would reach, if it is said for whom it is, and the form of a test push."""
    given = Given(request.query_params)
    told: Child = None
    if given.typed("audience"):
        try:
            told = await _previewed(request, _event(given))
        except (InvalidInputError, Problem) as error:
            told = el("p", str(error), class_="bad", role="alert")
    return _page(request, given, told)


def _page(request: Request, given: Given, told: Child = None, wrong: Child = None, status: int = 200) -> Response:
    """Show both forms as they were filled in, what is told of an audience, and what is wrong with a test push."""
    return show(
        request,
        t("Compose"),
        part(t("Whom would it reach?"), told, _audience(given), level="h1") if wrong is None else None,
        part(t("Test push"), wrong, _trial(given), id_="test", level="h1" if wrong else "h2")
        if is_operator(request)
        else None,
        status=status,
        live=False,
    )


def _again(request: Request, given: Given, problem: Problem) -> Response:
    """Show the form of a test push again, as it was filled in, with what is wrong with it."""
    hint = el("p", sentence(problem.hint)) if problem.hint else None
    wrong = el("div", el("p", problem.detail, class_="bad"), hint, class_="told", role="alert")
    return _page(request, given, wrong=wrong, status=problem.status)


async def _previewed(request: Request, event: dict[str, Any]) -> Markup:
    found = await threads_of(request).run_in_transaction(verbs.preview_json, event, sample=_SAMPLE)
    whom = {name: event.get(name, ()) for name in ("installations", "owners")}
    everyone = event["audience"] in ("everyone", "matching")
    left = await threads_of(request).run(audience.left_out, **whom, everyone=everyone, category=event.get("category"))
    strangers = await threads_of(request).run(audience.unknown_owners, list(whom["owners"]))
    owners = await threads_of(request).run(owners_of, found.sample)
    return _preview(found, owners, text([_not_known(strangers), _left_out(left, found, event)]))


def _not_known(owners: list[str]) -> Markup | None:
    """Name the owners that no phone has."""
    return el("p", t("not known: {owners}", owners=clipped(", ".join(owners), 300)), class_="told") if owners else None


def _left_out(left: LeftOut, found: Preview, event: dict[str, Any]) -> Markup | None:
    """Say who is left out, and why, as counts."""
    told = [(phones, _why_left_out(reason, event.get("category"))) for reason, phones in left.reasons.items()]
    if unknown := len(found.unknown_installations):
        told.append((unknown, t("nobody registered it")))
    matching = event["audience"] == "matching"
    if not told and not matching:
        return None
    head = t("Left out, beside those whose preferences do not match") if matching else t("Left out")
    if not left.is_all:
        head = f"{head} ({t('of the newest {n} phones', n=number(left.looked_at))})"
    return el(
        "div",
        el("h3", head),
        el("ul", [el("li", f"{count(phones, 'phone')}: {why}") for phones, why in told])
        if told
        else el("p", t("nobody")),
        class_="told",
    )


def _why_left_out(reason: str, category: str | None) -> str:
    if reason == "opted_out":
        return t("opted out of the category {category}", category=category or "")
    return reasons.not_allowed(reason).removesuffix(".")


def _event(given: Given) -> dict[str, Any]:
    """Read an audience off the form, as the SQL door takes it."""
    audience = given.text("audience", 20)
    event: dict[str, Any] = {"type": "preview", "key": "preview", "title": "preview", "audience": audience}
    if audience in ("installations", "owners"):
        lines = (line.strip(" ,") for line in given.text("whom", 4_000).splitlines())
        event[audience] = list(dict.fromkeys(line for line in lines if line))
    if audience == "matching":
        event["matching"] = _matching(given)
        event["topics"] = _words(given, "topics") or None
    event["category"] = given.text("category", 100) or None
    return {name: value for name, value in event.items() if value is not None}


def _matching(given: Given) -> dict[str, Any]:
    asked: dict[str, Any] = {name: _words(given, name) for name in _LISTS}
    asked |= {name: given.text(name, 2_000) for name in _WORDS}
    if amount := given.text("monto", 30):
        try:
            asked["monto"] = float(Decimal(amount))
        except InvalidOperation:
            raise Problem(400, t("{value} is no amount.", value=amount)) from None
    return {name: value for name, value in asked.items() if value}


def _words(given: Given, name: str) -> list[str]:
    return [each.strip() for each in given.text(name, 2_000).split(",") if each.strip()]


def _audience(given: Given) -> Markup:
    audiences = {each: t(each) for each in ("everyone", "matching", "owners", "installations")}
    return el(
        "form",
        el(
            "div",
            choice("audience", t("Audience"), audiences, given.typed("audience", 20) or "everyone"),
            box("category", t("Category"), given.typed("category", 100)),
            class_="filters",
        ),
        area("whom", t("With owners or installations: which, one a line"), given.typed("whom", 4_000), maxlength=4_000),
        el(
            "fieldset",
            el("legend", t("With preferences: what it is about")),
            el(
                "div",
                box("topics", t("Topics, apart by commas"), given.typed("topics", 2_000)),
                box("rubros", t("Rubros, apart by commas"), given.typed("rubros", 2_000)),
                box("region", t("Region"), given.typed("region", 2_000)),
                box("tipo", t("Tender type"), given.typed("tipo", 2_000)),
                box("monto", t("Amount"), given.typed("monto", 30), inputmode="decimal"),
                box("moneda", t("Currency"), given.typed("moneda", 2_000)),
                box("text", t("Text"), given.typed("text", 2_000)),
                class_="filters",
            ),
        ),
        el("button", t("Show whom it would reach")),
        method="get",
        action=HERE,
    )


def _preview(found: Preview, owners: Mapping[UUID, str], left_out: Markup | None) -> Markup:
    how_many = count(found.count, "phone")
    bounds = {"least": number(found.at_least), "most": number(found.at_most)}
    told = how_many if found.exact else t("about {phones}, between {least} and {most}", phones=how_many, **bounds)
    return el(
        "div",
        el("p", el("strong", told, class_="big"), role="status"),
        el("p", t("Nothing was sent."), class_="faint"),
        left_out,
        el("h3", t("Some of them")) if found.sample else None,
        el("ul", [el("li", _phone(each, owners)) for each in found.sample], class_="bare") if found.sample else None,
        class_="told",
    )


def _phone(phone: UUID, owners: Mapping[UUID, str]) -> Markup:
    """Lead to a phone, by its owner's name if it has one."""
    return phone_link(phone, clipped(owners.get(phone), 60) or el("code", str(phone)))


def _trial(given: Given) -> Markup:
    most = t("Installations, one a line, {n} at most", n=MOST_PHONES)
    return el(
        "form",
        el(
            "p",
            t("It goes to these phones alone, and its page tells whether each took it, or why not."),
            class_="faint",
        ),
        area("phones", most, given.typed("phones", 4_000), maxlength=4_000),
        box("owner", t("Or all phones of an owner"), given.typed("owner", 200)),
        box("title", t("Title"), given.typed("title", 500), maxlength=500),
        area("body", t("Body"), given.typed("body", 2_000)),
        box("data", t("Data for the app, as JSON"), given.typed("data", 2_000), maxlength=2_000, placeholder="{}"),
        el("button", t("Look at it first")),
        method="get",
        action=f"{PLACE}/test",
    )


async def _chosen(request: Request, given: Given) -> list[UUID]:
    """Return the phones that are named, and those of the owner that is."""
    phones = given.uuids("phones", MOST_PHONES)
    if owner := given.text("owner", 200):
        rows = await threads_of(request).run(installations, owner=owner, limit=MOST_PHONES + 1)
        phones = list(dict.fromkeys([*phones, *(row["installation_id"] for row in rows)]))
    if not phones:
        raise Problem(404, t("No phone is named, and the owner has none."), hint=t("Name one by its id."))
    if len(phones) > MOST_PHONES:
        raise Problem(400, t("These are too many: {most} at most.", most=MOST_PHONES))
    return phones


def _made(given: Given, phones: list[UUID], key: str) -> Event:
    written = given.text("data", 2_000) or "{}"
    try:
        data = json.loads(written)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise Problem(
            400,
            t("The data must be a JSON object."),
            hint=t("It must look like {example}.", example='{"screen": "inbox"}'),
        )
    return test_pushes.make(key, phones, given.text("title", 500), given.text("body", 2_000), data)


async def _ask_test(request: Request, given: Given) -> Question:
    phones = await _chosen(request, given)
    event = _made(given, phones, str(uuid4()))
    judged = await threads_of(request).run_in_transaction(partial(test_pushes.judge, event=event, phones=phones))
    getting = sum(each.gets_it for _, each in judged)
    owners = await threads_of(request).run(owners_of, phones)
    heads = [t("Phone"), t("Gets it"), t("Why")]
    rows: list[list[Child]] = [[_phone(phone, owners), _yes(each), _rule(each)] for phone, each in judged]
    kept = {
        "phones": "\n".join(map(str, phones)),
        "title": event.title,
        "body": event.body,
        "data": json.dumps(event.data) if event.data else "",
    }
    return Question(
        _how_many(getting, len(phones)),
        t("Send it"),
        [_bubble(event.title, event.body), _missed(judged), table(heads, rows, empty="", label=t("Phones"))],
        kept={**kept, "key": event.key},
        back=address(HERE, **kept) + "#test",
        possible=getting > 0,
    )


def _how_many(getting: int, chosen: int) -> str:
    phones = count(chosen, "phone")
    if getting == chosen:
        return t("Send this test push to {phones}?", phones=phones)
    if not getting:
        return t("None of {phones} would get this test push.", phones=phones)
    return t("Send this test push to {n} of {phones}?", n=number(getting), phones=phones)


def _missed(judged: Sequence[tuple[UUID, Explanation]]) -> Markup | None:
    """Say how many of the chosen phones are left out, and why."""
    whys = Counter(_rule(each) for _, each in judged if not each.gets_it)
    if not whys:
        return None
    told = [el("li", f"{count(phones, 'phone')}: {why}") for why, phones in whys.most_common()]
    return el("div", el("h2", t("Left out")), el("ul", told), class_="told")


def _yes(explained: Explanation) -> Markup:
    return badge(t("yes"), "good") if explained.gets_it else badge(t("no"), "bad")


def _bubble(title: str, body: str) -> Markup:
    """Show a push as a phone would."""
    return el(
        "div",
        el("strong", title or t("(silent: for the app alone)")),
        el("p", body) if body else None,
        class_="bubble",
    )


async def _test(request: Request, given: Given) -> Told:
    phones = given.uuids("phones", MOST_PHONES)
    keys = given.uuids("key", 1)
    if not keys or not phones:
        raise Problem(400, t("No phone is named, and the owner has none."), hint=t("Name one by its id."))
    event_id = await threads_of(request).run(test_pushes.send, _made(given, phones, str(keys[0])), phones)
    return Told("", to=f"{HERE}/{event_id}")


DEEDS = {"test": Deed(_ask_test, _test, _again)}


@router.get("/dashboard/compose/{event_id}")
async def trial(request: Request, event_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show how far a test push is, until it has ended."""
    seen = await threads_of(request).run(test_pushes.follow, event_id)
    owners = await threads_of(request).run(owners_of, [each.phone for each in seen.answers])
    title, kind = _verdict(seen)
    told = seen.event.raw
    heads = [t("Phone"), t("State"), t("What that means")]
    return show(
        request,
        t("Test push"),
        el(
            "section",
            el("h1", title),
            [el("p", sentence(said(each))) for each in seen.waits],
            None if seen.is_over else _look_again(event_id),
            class_=f"card verdict {kind}",
            role="status",
        ),
        part(
            t("What was sent"),
            _bubble(told.get("title") or "", told.get("body") or ""),
            table(
                heads,
                [_answer(each, owners) for each in seen.answers],
                empty=t("It names no phone."),
                label=t("Phones"),
            ),
            el(
                "p",
                event_link(event_id, t("Its timeline")),
                el("a", t("Another test push"), href=HERE),
                class_="row",
            ),
        ),
        live=not seen.is_over,
    )


def _look_again(event_id: int) -> Markup:
    by_hand = el("noscript", el("p", el("a", t("Look again"), href=f"{HERE}/{event_id}")))
    return el("div", el("p", t("This page looks again by itself."), class_="faint script"), by_hand)


def _verdict(seen: Trial) -> tuple[str, str]:
    """Say in a sentence whether it was taken, by how many, or by none."""
    phones, taken = count(len(seen.answers), "phone"), seen.count("ok", "unconfirmed")
    if not seen.is_over:
        if sent := seen.count(*_GOOD):
            return t("Sent to {n} of {phones}; the receipts are awaited.", n=number(sent), phones=phones), ""
        return _under_way(seen, phones), ""
    if taken:
        return t("Taken by {n} of {phones}.", n=number(taken), phones=phones), "good"
    return t("Taken by none of {phones}.", phones=phones), "bad"


def _under_way(seen: Trial, phones: str) -> str:
    """Say to how many of the chosen phones it goes."""
    getting = sum(each.delivery is not None or each.explanation.gets_it for each in seen.answers)
    if getting == len(seen.answers):
        return t("On its way to {phones}.", phones=phones)
    return t("On its way to {n} of {phones}.", n=number(getting), phones=phones)


def _answer(answer: Answer, owners: Mapping[UUID, str]) -> list[Child]:
    if answer.delivery is None:
        return [_phone(answer.phone, owners), badge(t("none"), ""), _rule(answer.explanation)]
    return [_phone(answer.phone, owners), state(answer.delivery["status"]), _meaning(answer.delivery)]


def _meaning(delivery: Mapping[str, Any]) -> Child:
    error = delivery["last_error_message"] or delivery["last_error_code"]
    explained = delivery["last_error_code"] and delivery["status"] != "invalid"  # which says as much
    told = reasons.in_words(delivery["last_error_code"]) if explained else ""
    return [
        reasons.meaning(delivery["status"]),
        el("span", told, class_="block") if told not in ("", error) else None,
        el("span", error, class_="bad block") if error else None,
    ]


def _rule(explained: Explanation) -> str:
    """Say by which rule a phone gets it, or not."""
    if explained.rule == "installation_gone":
        return t("Nobody registered it, or it was forgotten.")
    return reasons.rule(explained)
