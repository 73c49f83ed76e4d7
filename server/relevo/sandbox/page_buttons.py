"""The buttons of the pages: switch a phone, tap a push or dismiss it, change the phone's language."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote

from relevo.sandbox.answers import HTML, Answer
from relevo.sandbox.language import t
from relevo.sandbox.phone_apps import LOCALES
from relevo.sandbox.phones import Phone
from relevo.sandbox.services import device_tokens
from relevo.sandbox.world import World

PATHS = ("/switch", "/tap", "/dismiss", "/language")
LABELS = {"expo": "Expo", "fcm": "FCM", "apns": "APNs", "webpush": "Web Push"}
_TOUCHES = {
    "tapped": "Tapped",
    "read": "Tapped, and read in the inbox",
    "not told": "Tapped; Relevo could not be told",
    "dismissed": "Dismissed",
}


async def press(world: World, path: str, body: bytes) -> Answer:
    """Do what a button says, and lead back to where it was pressed."""
    form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
    phone = world.phones.find(form.get("phone", ""))
    if phone is not None:
        await _do(world, path, phone, form)
    back = f"/phones/{quote(phone.token, safe='')}" if phone and form.get("back") == "phone" else "/"
    return Answer(303, b"", HTML, {"location": back, "cache-control": "no-store"})


async def _do(world: World, path: str, phone: Phone, form: Mapping[str, str]) -> None:
    delivery, app = form.get("delivery", ""), phone.app
    data = phone.data_of(delivery)
    match path:
        case "/switch":
            world.switch(phone.token, on=form.get("on") == "1")
        case "/tap" if data is not None:
            phone.touch(delivery, await asyncio.to_thread(app.tap, data) if app else "tapped")
        case "/dismiss" if data is not None:
            phone.touch(delivery, "dismissed")
        case "/language" if app and form.get("locale") in LOCALES:
            await asyncio.to_thread(app.speak, form["locale"])


def switch(phone: Phone, back: str = "") -> str:
    """Write what kind of phone it is, whether it is off and what waits for it, and the button that switches it."""
    kind = f'<span class="badge">{escape(LABELS[phone.kind])}</span>'
    waiting = phone.waiting
    if waiting is not None:
        dropped = t(", {n} dropped", n=f"{waiting.dropped:,}") if waiting.dropped else ""
        kind += f' <span class="badge warn">{t("Off: {n} waiting", n=len(waiting))}{dropped}</span>'
    on, told = ("0", t("Switch off")) if waiting is None else ("1", t("Switch on"))
    return f'<div class="state"><span>{kind}</span>{_form("/switch", phone, told, back, on=on)}</div>'


def language(phone: Phone, back: str = "") -> str:
    """Write the choice of the phone's language, if its app is known: Relevo has to be told."""
    if phone.app is None:
        return ""
    options = "".join(
        f"<option{' selected' if each == phone.app.locale else ''}>{escape(each)}</option>" for each in LOCALES
    )
    named = t("Language")
    choice = f'<label>{named} <select name="locale">{options}</select></label>'
    return f'<div class="state">{_form("/language", phone, t("Change"), back, choice)}</div>'


def touch(phone: Phone, message: Any, back: str = "") -> str:
    """Write what became of a push on the screen, or the buttons that tap and dismiss it."""
    data = message.get("data")
    delivery = str(data.get("notificationDeliveryId", "")) if isinstance(data, dict) else ""
    if not delivery:
        return ""
    if (done := (phone.touched or {}).get(delivery)) is not None:
        loud = " warn" if done == "not told" else ""
        return f'<p><span class="badge{loud}">{t(_TOUCHES[done])}</span></p>'
    if phone.waiting is not None:
        return ""
    tap = _form("/tap", phone, t("Tap"), back, delivery=delivery)
    return f'<div class="state touch">{tap}{_form("/dismiss", phone, t("Dismiss"), back, delivery=delivery)}</div>'


def _form(path: str, phone: Phone, told: str, back: str, shown: str = "", **fields: str) -> str:
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(text)}">'
        for name, text in ({"phone": phone.token, "back": back} | fields).items()
    )
    label = escape(device_tokens.label_of(phone.token)[:300])
    button = f'<button aria-label="{told}: {label}">{told}</button>'
    return f'<form method="post" action="{path}">{hidden}{shown}{button}</form>'
