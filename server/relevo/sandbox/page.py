"""The pages: totals, phones and faults at `/`, what came of one event, delivery or phone, and what their buttons do.

They belong to the dashboard's family: its style sheet is theirs, and its script renews them; nothing is from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from relevo.core import i18n
from relevo.core.i18n import N_, ngettext
from relevo.core.i18n import gettext as _
from relevo.core.known_services import LABELS, NATIVE
from relevo.core.phrases import clipped
from relevo.sandbox import push_service
from relevo.sandbox.answers import HTML, HttpResponse
from relevo.sandbox.phone_apps import LOCALES
from relevo.sandbox.phones import Phone, actions_of, delivery_of
from relevo.sandbox.state import SandboxState

SHOWN = 60
BUTTONS = ("/switch", "/tap", "/dismiss", "/language")
_HERE = Path(__file__).parent
_FILES = {
    "/relevo.css": (
        "text/css",
        (_HERE.with_name("http") / "dashboard/static/relevo.css", _HERE / "static/sandbox.css"),
    ),
    "/relevo.js": ("text/javascript", (_HERE.with_name("http") / "dashboard/static/relevo.js",)),
}
_KEPT = {"cache-control": "public, max-age=3600"}
_MAX_TEXT = 300
_MAX_ACTION = 100
_MILLION = 1_000_000
_NAMES = {"events": "notificationEventId", "deliveries": "notificationDeliveryId"}
_TOUCHES = {
    "tapped": N_("Tapped"),
    "read": N_("Tapped, and read in the inbox"),
    "not told": N_("Tapped; Relevo could not be told"),
    "dismissed": N_("Dismissed"),
}
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


def find(state: SandboxState, path: str, address: str) -> HttpResponse | None:
    """Return the page at a path, as it stands now, or None if there is none."""
    if path == "/":
        return _overview(state, address)
    if path in _FILES:
        return _file(path)
    room, name = path.strip("/").partition("/")[::2]
    if room in _NAMES and name:
        return _of_name(state, room, name)
    if room == "phones" and name:
        phone = state.phones.find(name)
        return _answer("phone.html", 404 if phone is None else 200, title=_("Phone"), token=name, phone=phone)
    return None


@cache
def _file(path: str) -> HttpResponse:
    kind, files = _FILES[path]
    return HttpResponse(200, b"".join(each.read_bytes() for each in files), f"{kind}; charset=utf-8", _KEPT)


def _answer(template: str, status: int = 200, **seen: object) -> HttpResponse:
    text = _environment().get_template(template).render(seen)
    return HttpResponse(status, text.encode("utf-8", "replace"), HTML, _HEADERS)


def _overview(state: SandboxState, address: str) -> HttpResponse:
    totals = state.totals()
    return _answer(
        "overview.html",
        title="Relevo sandbox",
        settings=state.settings,
        figures=_figures(totals),
        faults=[{"service": None, **rule} for rule in state.faults()],
        phones=state.phones.latest(SHOWN),
        all_phones=len(state.phones),
        services=state.services,
        answered=totals.get("services", {}),
        address=address,
    )


def _figures(totals: Mapping[str, Any]) -> list[tuple[str, int, bool]]:
    """Return the totals with their names, and whether each is a warning."""
    duplicates, errors, limited = (totals[name] for name in ("duplicates", "errorTickets", "rateLimited"))
    return [
        (_("Requests"), totals["requests"], False),
        (_("Messages"), totals["messages"], False),
        (_("Delivered"), totals["delivered"], False),
        (_("Phones"), totals["phones"], False),
        (_("Duplicates"), duplicates, duplicates > 0),
        (_("Error tickets"), errors, errors > 0),
        (_("Receipts"), totals["receiptsGiven"], False),
        (_("Rate-limited"), limited, limited > 0),
        (_("Peak in flight"), max(totals["peakConnections"].values(), default=0), False),
    ]


def _of_name(state: SandboxState, room: str, name: str) -> HttpResponse:
    """Show every message of one event or delivery: what each phone got, and how often."""
    found = state.phones.messages_of(_NAMES[room], name, SHOWN)
    title = _("Event %(id)s", id=name[:50]) if room == "events" else _("Delivery %(id)s", id=name[:50])
    times = ngettext("it arrived once", "it arrived %(n)s times", len(found))
    if len(found) >= SHOWN:
        times = _("it arrived %(n)s times or more", n=len(found))
    return _answer("messages.html", 200 if found else 404, title=title, found=found, times=times)


def _text(part: object) -> str:
    return clipped(str(part or ""), _MAX_TEXT)


def _as_it_came(message: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in message.items() if name not in ("to", "title", "body")}
    return clipped(json.dumps(rest, ensure_ascii=False, indent=1, default=str), 3000)


def _moment(at: float) -> Markup:
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    told = time.strftime("%H:%M:%S UTC", time.gmtime(at))
    return Markup('<time datetime="%s" title="%s" data-local>%s</time>') % (exact, exact, told)


def _brief(number: int) -> str:
    """Write a number so that it fits its tile; millions are rounded."""
    return f"{number:,}" if number < _MILLION else f"{number / _MILLION:,.2f} M"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    made.install_gettext_callables(i18n.gettext, i18n.ngettext)  # type: ignore[attr-defined] # by the i18n extension
    made.globals |= {"labels": LABELS, "language": i18n.language, "locales": LOCALES, "touches": _TOUCHES}
    made.globals["native_labels"] = [LABELS[name] for name in NATIVE]
    made.filters |= {
        "actions": actions_of,
        "as_it_came": _as_it_came,
        "brief": _brief,
        "clipped": clipped,
        "delivery_id": delivery_of,
        "in_path": lambda token: quote(token, safe=""),
        "label": push_service.label_of,
        "moment": _moment,
        "text": _text,
    }
    return made


async def press(state: SandboxState, path: str, body: bytes) -> HttpResponse:
    """Do what a button says, and lead back to where it was pressed."""
    form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
    phone = state.phones.find(form.get("phone", ""))
    if phone is not None:
        await _do(state, path, phone, form)
    back = f"/phones/{quote(phone.token, safe='')}" if phone and form.get("back") == "phone" else "/"
    return HttpResponse(303, b"", HTML, {"location": back, "cache-control": "no-store"})


async def _do(state: SandboxState, path: str, phone: Phone, form: Mapping[str, str]) -> None:
    delivery, app, action = form.get("delivery", ""), phone.app, form.get("action", "")[:_MAX_ACTION]
    data = phone.data_of(delivery)
    match path:
        case "/switch":
            state.switch(phone.token, on=form.get("on") == "1")
        case "/tap" if data is not None:
            phone.touch(delivery, await asyncio.to_thread(app.tap, data, action) if app else "tapped")
        case "/dismiss" if data is not None:
            phone.touch(delivery, "dismissed")
        case "/language" if app and form.get("locale") in LOCALES:
            await asyncio.to_thread(app.speak, form["locale"])
