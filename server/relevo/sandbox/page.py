"""The page at `/`: totals, phones and faults at a glance; no script, nothing from elsewhere, every text escaped."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from relevo.sandbox.answers import HTML, Answer
from relevo.sandbox.phones import Phone
from relevo.sandbox.world import World

SHOWN = 60
REFRESH_S = 3
_MAX_TEXT = 300
_MILLION = 1_000_000
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

_STYLE = """
:root { color-scheme: light dark; --back: #f4f5f7; --card: #fff; --ink: #1c2330; --soft: #5d6778; --line: #dfe3ea;
  --accent: #3457d5; --warn: #9a5b00; --warn-back: #fff3dc; }
@media (prefers-color-scheme: dark) { :root { --back: #12151b; --card: #1b2029; --ink: #e8ebf1; --soft: #9aa5b7;
  --line: #2c3441; --accent: #8ea6ff; --warn: #f3c069; --warn-back: #33290f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
header { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: .25rem 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 2rem 0 .75rem; }
p { margin: .25rem 0; }
.soft { color: var(--soft); font-size: .875rem; }
code { font-family: ui-monospace, monospace; font-size: .875em; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.6rem, 1fr)); gap: .6rem; margin: 1.25rem 0 0; }
dl div, article, .note { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; }
dl div { padding: .6rem .75rem; }
dt { color: var(--soft); font-size: .8125rem; }
dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.loud dt, .loud dd { color: var(--warn); }
.loud { background: var(--warn-back); }
.phones { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: .75rem; }
article { padding: .9rem 1rem; display: flex; flex-direction: column; gap: .35rem; min-width: 0; }
article .top { display: flex; justify-content: space-between; align-items: start; gap: .75rem; color: var(--soft); }
article h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
article p { overflow-wrap: anywhere; margin: 0; }
article code, article h3, article p { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3;
  overflow: hidden; }
article code, article h3 { -webkit-line-clamp: 2; }
.count { background: var(--accent); color: var(--card); border-radius: 1rem; padding: 0 .6rem; font-size: .8125rem;
  font-weight: 600; white-space: nowrap; }
.count.twice { background: var(--warn); }
.note { padding: 2rem 1.25rem; text-align: center; border-style: dashed; }
.note pre { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--back);
  border-radius: .5rem; padding: .9rem;
  max-width: 44rem; margin: 1rem auto 0; }
ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .5rem; }
li { background: var(--warn-back); color: var(--warn); border-radius: 1rem; padding: .1rem .8rem; font-size: .875rem;
  overflow-wrap: anywhere; }
"""


def render(world: World, address: str) -> Answer:
    """Return the page as it stands now."""
    text = (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{REFRESH_S}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Relevo sandbox</title>'
        f"<style>{_STYLE}</style></head><body><main>"
        f"<header><h1>Relevo sandbox</h1>{_how(world)}</header>"
        f"{_totals(world.totals())}{_faults(world.rules.as_json())}{_phones(world, address)}"
        "</main></body></html>\n"
    )
    return Answer(200, text.encode("utf-8", "replace"), HTML, _HEADERS)


def _how(world: World) -> str:
    settings = world.settings
    parts = [
        f"{settings.rate_per_s:g} messages/s per project" if settings.rate_per_s else "no rate limit",
        f"receipts after {settings.receipt_delay_s:g} s",
        "access token required" if settings.access_token else "no access token",
    ]
    if settings.time_scale != 1:
        parts.append(f"{settings.time_scale:g} times as fast")
    if settings.latency_ms:
        parts.append(f"latency {settings.latency_ms:g} ms")
    return f'<p class="soft">{escape(" · ".join(parts))}</p>'


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
        f"<div{' class=loud' if loud else ''}><dt>{name}</dt><dd title={number}>{_brief(number)}</dd></div>"
        for name, number, loud in cells
    )
    return f"<dl>{terms}</dl>"


def _brief(number: int) -> str:
    """Write a number so that it fits its tile; millions are rounded."""
    return f"{number:,}" if number < _MILLION else f"{number / _MILLION:,.2f} M"


def _faults(rules: list[dict[str, Any]]) -> str:
    if not rules:
        return ""
    return f"<h2>Faults in force</h2><ul>{''.join(f'<li>{escape(_rule(rule))}</li>' for rule in rules)}</ul>"


def _rule(rule: dict[str, Any]) -> str:
    parts = [rule["fault"], f"{rule['share'] * 100:g} %"]
    if rule["on"] != "send":
        parts.append("on receipts")
    if rule["times"] is not None:
        parts.append(f"{rule['times']} times more")
    if rule["project"] is not None:
        parts.append(rule["project"])
    if rule["seconds"] is not None:
        parts.append(f"for {rule['seconds']:.0f} s")
    return " · ".join(parts)


def _phones(world: World, address: str) -> str:
    phones = world.phones.latest(SHOWN)
    if not phones:
        return _nothing_yet(address)
    count = len(world.phones)
    shown = f"the last {len(phones)} of {count:,}" if count > len(phones) else f"{count:,}"
    cards = "".join(_card(phone) for phone in phones)
    return f'<h2>Phones <span class="soft">{shown}</span></h2><div class="phones">{cards}</div>'


def _card(phone: Phone) -> str:
    times = "times" if phone.received != 1 else "time"
    repeated = phone.received - phone.distinct
    badge = f"{phone.received:,} {times}" + (f", {repeated:,} repeated" if repeated else "")
    top = (
        f'<div class="top"><code>{escape(_short(phone.token))}</code>'
        f'<span class="count{" twice" if repeated else ""}">{badge}</span></div>'
    )
    if phone.last is None:
        return f"<article>{top}<p class=soft>The message itself is not kept.</p></article>"
    at, message = phone.last
    title, body = (escape(_short(str(message.get(part) or ""))) for part in ("title", "body"))
    heading = f"<h3>{title or 'No title'}</h3>" + (f"<p>{body}</p>" if body else "")
    when = time.strftime("%H:%M:%S UTC", time.gmtime(at))
    return f'<article>{top}{heading}<p class="soft">{when}</p></article>'


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _nothing_yet(address: str) -> str:
    base = escape(address)
    example = escape(
        f"curl {address}/--/api/v2/push/send -H 'content-type: application/json' \\\n"
        '  -d \'{"to": "ExponentPushToken[ana]", "title": "Hello", "body": "from the sandbox"}\''
    )
    return (
        '<h2>Phones</h2><div class="note"><p><strong>No phone has received anything yet.</strong></p>'
        f"<p>Send to this address, as <code>EXPO_BASE_URL={base}</code>, and watch messages arrive here.</p>"
        f"<pre><code>{example}</code></pre></div>"
    )
