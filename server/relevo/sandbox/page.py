"""The pages: totals, phones and faults at `/`, and what came of one event, delivery or phone; nothing from elsewhere,
every text escaped. They belong to the dashboard's family: its style sheet is theirs, and its script renews them.
"""

from __future__ import annotations

import json
import time
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from relevo.sandbox import page_buttons
from relevo.sandbox.answers import HTML, Answer
from relevo.sandbox.language import spoken, t
from relevo.sandbox.page_buttons import LABELS
from relevo.sandbox.phones import Phone
from relevo.sandbox.services import device_tokens
from relevo.sandbox.world import World

SHOWN = 60
STYLE, SCRIPT = "/relevo.css", "/relevo.js"
_DESIGN = Path(__file__).parents[1] / "http" / "dashboard" / "static"
_KEPT = {"cache-control": "public, max-age=3600"}
_MAX_TEXT = 300
_MILLION = 1_000_000
_NAMES = {"events": "notificationEventId", "deliveries": "notificationDeliveryId"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
_MORE_STYLE = """
.phones { display: grid; gap: calc(3 * var(--s));
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
.phones article { align-content: start; gap: calc(1 * var(--s)); }
.phones .top { display: flex; justify-content: space-between; align-items: start; gap: calc(3 * var(--s)); }
.phones a, .phones h3, .phones p { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3;
  overflow: hidden; }
.state { display: flex; justify-content: space-between; align-items: center; flex-wrap: wrap;
  gap: calc(2 * var(--s)); }
.state form { display: flex; align-items: center; gap: calc(2 * var(--s)); margin: 0; padding: 0; border: 0;
  background: none; }
.state label { display: flex; align-items: center; gap: calc(2 * var(--s)); font-size: .88em; white-space: nowrap; }
.touch { justify-content: start; }
.state button { padding: 0 calc(3 * var(--s)); font-size: .88em; background: none; color: var(--accent); }
.loud .big { color: var(--warn); }
pre { margin: 0; white-space: pre-wrap; }
"""


def find(world: World, path: str, address: str) -> Answer | None:
    """Return the page at a path, as it stands now, or None if there is none."""
    if path == "/":
        return _answer("Relevo sandbox", _overview(world, address))
    if path == STYLE:
        return Answer(200, _file("relevo.css") + _MORE_STYLE.encode(), "text/css; charset=utf-8", _KEPT)
    if path == SCRIPT:
        return Answer(200, _file("relevo.js"), "text/javascript; charset=utf-8", _KEPT)
    room, _, name = path.strip("/").partition("/")
    if room in _NAMES and name:
        return _of_name(world, room, name)
    if room == "phones" and name:
        return _of_phone(world, name)
    return None


@cache
def _file(name: str) -> bytes:
    return (_DESIGN / name).read_bytes()


def _answer(title: str, body: str, *, status: int = 200) -> Answer:
    text = (
        "<!doctype html>\n"
        f'<html lang="{spoken()}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f'<link rel="stylesheet" href="{STYLE}"><script src="{SCRIPT}" defer></script></head><body>'
        f'<header><a class="brand" href="/">Relevo sandbox</a></header><main data-live>{body}</main></body></html>\n'
    )
    return Answer(status, text.encode("utf-8", "replace"), HTML, _HEADERS)


def _overview(world: World, address: str) -> str:
    head = f'<section class="card"><h1>{t("What the phones got")}</h1>{_how(world)}</section>'
    totals = world.totals()
    return (
        f"{head}{_totals(totals)}{_faults(world.faults())}{_phones(world, address)}"
        f"{_services(world, totals.get('services', {}), address)}"
    )


def _of_name(world: World, room: str, name: str) -> Answer:
    """Show every message of one event or delivery: what each phone got, and how often."""
    found = world.phones.messages_of(_NAMES[room], name, SHOWN)
    what = t("Event {id}" if room == "events" else "Delivery {id}", id=name[:50])
    if not found:
        why = t(
            "No phone of this sandbox got it: it was refused or not sent yet, or the sandbox was started since then."
        )
        return _answer(what, f'<section class="card"><h1>{escape(what)}</h1><p>{why}</p></section>', status=404)
    many = "it arrived {n} times" if len(found) < SHOWN else "it arrived {n} times or more"
    times = t("it arrived once") if len(found) == 1 else t(many, n=len(found))
    cards = "".join(_message(at, message, phone) for phone, (at, message) in found)
    return _answer(what, f'<section class="card"><h1>{escape(what)}: {times}</h1></section>{cards}')


def _of_phone(world: World, token: str) -> Answer:
    """Show the last messages of one phone."""
    phone = world.phones.find(token)
    named = escape(_short(device_tokens.label_of(token)))
    if phone is None:
        why = t("No message has reached this phone.")
        return _answer(t("Phone"), f'<section class="card"><h1>{named}</h1><p>{why}</p></section>', status=404)
    kept = "".join(_message(at, message, phone, on_its_page=True) for at, message in reversed(phone.kept or ()))
    buttons = page_buttons.switch(phone, "phone") + page_buttons.language(phone, "phone")
    head = f'<section class="card"><h1>{named}</h1>{buttons}<p>{_count(phone)}</p></section>'
    none = t("The messages themselves are not kept.") if phone.received else t("Nothing received yet.")
    nothing = f'<p class="faint">{none}</p>'
    return _answer(t("Phone"), head + (kept or nothing))


def _message(at: float, message: Any, phone: Phone, *, on_its_page: bool = False) -> str:
    """Write a message as the phone shows it, with what can be done with it there, and under it as it came."""
    title, body = (escape(_short(str(message.get(part) or ""))) for part in ("title", "body"))
    whose = "" if on_its_page else f"<p>{_link(phone.token)}</p>"
    buttons = page_buttons.touch(phone, message, "phone") if on_its_page else ""
    rest = {name: value for name, value in message.items() if name not in ("to", "title", "body")}
    came = escape(_short(json.dumps(rest, ensure_ascii=False, indent=1, default=str), 3000))
    return (
        f'<article class="card">{whose}<h2>{title or t("No title")}</h2><p>{body}</p><p class="faint">{_when(at)}</p>'
        f"{buttons}<details><summary>{t('As it came')}</summary><pre><code>{came}</code></pre></details></article>"
    )


def _when(at: float) -> str:
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    told = time.strftime("%H:%M:%S UTC", time.gmtime(at))
    return f'<time datetime="{exact}" title="{exact}" data-local>{told}</time>'


def _link(token: str) -> str:
    return f'<a href="/phones/{quote(token, safe="")}"><code>{escape(_short(device_tokens.label_of(token)))}</code></a>'


def _count(phone: Phone) -> str:
    repeated = phone.received - phone.distinct
    told = t("{n} times", n=f"{phone.received:,}") if phone.received != 1 else t("1 time")
    told += t(", {n} repeated", n=f"{repeated:,}") if repeated else ""
    return f'<span class="badge{" warn" if repeated else ""}">{told}</span>'


def _how(world: World) -> str:
    settings = world.settings
    parts = [
        t("{rate} messages/s per project", rate=f"{settings.rate_per_s:g}")
        if settings.rate_per_s
        else t("no rate limit"),
        t("receipts after {seconds} s", seconds=f"{settings.receipt_delay_s:g}"),
        t("access token required") if settings.access_token else t("no access token"),
    ]
    if settings.time_scale != 1:
        parts.append(t("{times} times as fast", times=f"{settings.time_scale:g}"))
    if settings.latency_ms:
        parts.append(t("latency {ms} ms", ms=f"{settings.latency_ms:g}"))
    return f'<p class="faint">{escape(" · ".join(parts))}</p>'


def _totals(totals: dict[str, Any]) -> str:
    cells = (
        ("Requests", totals["requests"], False),
        ("Messages", totals["messages"], False),
        ("Delivered", totals["delivered"], False),
        ("Phones", totals["phones"], False),
        ("Duplicates", totals["duplicates"], totals["duplicates"] > 0),
        ("Error tickets", totals["errorTickets"], totals["errorTickets"] > 0),
        ("Receipts", totals["receiptsGiven"], False),
        ("Rate-limited", totals["rateLimited"], totals["rateLimited"] > 0),
        ("Peak in flight", max(totals["peakConnections"].values(), default=0), False),
    )
    terms = "".join(
        f'<div class="card{" loud" if loud else ""}"><dt>{t(name)}</dt>'
        f'<dd class="big" title="{number}">{_brief(number)}</dd></div>'
        for name, number, loud in cells
    )
    return f'<dl class="figures">{terms}</dl>'


def _brief(number: int) -> str:
    """Write a number so that it fits its tile; millions are rounded."""
    return f"{number:,}" if number < _MILLION else f"{number / _MILLION:,.2f} M"


def _faults(rules: list[dict[str, Any]]) -> str:
    if not rules:
        return ""
    told = "".join(f"<li>{escape(_rule(rule))}</li>" for rule in rules)
    return f'<section class="card"><h2>{t("Faults in force")}</h2><ul>{told}</ul></section>'


def _rule(rule: dict[str, Any]) -> str:
    parts = [LABELS[rule["service"]]] if "service" in rule else []
    parts += [rule["fault"], f"{rule['share'] * 100:g} %"]
    if rule["on"] != "send":
        parts.append(t("on receipts"))
    if rule["times"] is not None:
        parts.append(t("{n} times more", n=rule["times"]))
    if rule["project"] is not None:
        parts.append(rule["project"])
    if rule["seconds"] is not None:
        parts.append(t("for {seconds} s", seconds=f"{rule['seconds']:.0f}"))
    return " · ".join(parts)


def _phones(world: World, address: str) -> str:
    phones = world.phones.latest(SHOWN)
    if not phones:
        return _nothing_yet(address)
    count = len(world.phones)
    shown = t("the last {n} of {all}", n=len(phones), all=f"{count:,}") if count > len(phones) else f"{count:,}"
    cards = "".join(_card(phone) for phone in phones)
    return f'<h2>{t("Phones")} <span class="faint">{shown}</span></h2><div class="phones">{cards}</div>'


def _card(phone: Phone) -> str:
    top = f'<div class="top">{_link(phone.token)}{_count(phone)}</div>{page_buttons.switch(phone)}'
    if phone.last is None:
        none = t("The message itself is not kept.") if phone.received else t("Nothing received yet.")
        return f'<article class="card">{top}<p class="faint">{none}</p></article>'
    at, message = phone.last
    title, body = (escape(_short(str(message.get(part) or ""))) for part in ("title", "body"))
    heading = f"<h3>{title or t('No title')}</h3>" + (f"<p>{body}</p>" if body else "")
    touch = page_buttons.touch(phone, message)
    return f'<article class="card">{top}{heading}<p class="faint">{_when(at)}</p>{touch}</article>'


def _short(text: str, most: int = _MAX_TEXT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _nothing_yet(address: str) -> str:
    base = escape(address)
    example = escape(
        f"curl {address}/--/api/v2/push/send -H 'content-type: application/json' \\\n"
        '  -d \'{"to": "ExponentPushToken[ana]", "title": "Hello", "body": "from the sandbox"}\''
    )
    how = t(
        "Send to this address, as {setting}, and watch messages arrive here.",
        setting=f"<code>EXPO_BASE_URL={base}</code>",
    )
    return (
        f'<section class="card"><h2>{t("Phones")}</h2>'
        f"<p><strong>{t('No phone has received anything yet.')}</strong></p><p>{how}</p>"
        f"<pre><code>{example}</code></pre></section>"
    )


def _statuses(found: dict[str, int]) -> str:
    return ", ".join(f"{count:,} &times; {status}" for status, count in found.items())


def _services(world: World, totals: dict[str, dict[str, int]], address: str) -> str:
    """Write how to send to FCM, APNs and Web Push here, and how their requests were answered."""
    if world.services is None:
        return ""
    settings = escape("\n".join(f"{name}={value}" for name, value in world.services.settings().items()))
    example = escape(f'curl {address}/sandbox/tokens -d \'{{"service": "webpush", "name": "ana"}}\'')
    answered = "".join(f"<li>{LABELS[each]}: {_statuses(found)}</li>" for each, found in totals.items() if found)
    return (
        f'<section class="card"><h2>FCM, APNs, Web Push</h2><p>{t("Relevo sends to them with these settings:")}</p>'
        f"<pre><code>{settings}</code></pre><p>{t('A token for a phone, or a subscription of a browser:')}</p>"
        f"<pre><code>{example}</code></pre><ul>{answered}</ul></section>"
    )
