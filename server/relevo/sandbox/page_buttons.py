"""What the buttons of the pages do: switch a phone, tap a push or dismiss it, change the phone's language."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs, quote

from relevo.sandbox.answers import HTML, Answer
from relevo.sandbox.phone_apps import LOCALES
from relevo.sandbox.phones import Phone
from relevo.sandbox.state import SandboxState

PATHS = ("/switch", "/tap", "/dismiss", "/language")


async def press(state: SandboxState, path: str, body: bytes) -> Answer:
    """Do what a button says, and lead back to where it was pressed."""
    form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
    phone = state.phones.find(form.get("phone", ""))
    if phone is not None:
        await _do(state, path, phone, form)
    back = f"/phones/{quote(phone.token, safe='')}" if phone and form.get("back") == "phone" else "/"
    return Answer(303, b"", HTML, {"location": back, "cache-control": "no-store"})


async def _do(state: SandboxState, path: str, phone: Phone, form: Mapping[str, str]) -> None:
    delivery, app = form.get("delivery", ""), phone.app
    data = phone.data_of(delivery)
    match path:
        case "/switch":
            state.switch(phone.token, on=form.get("on") == "1")
        case "/tap" if data is not None:
            phone.touch(delivery, await asyncio.to_thread(app.tap, data) if app else "tapped")
        case "/dismiss" if data is not None:
            phone.touch(delivery, "dismissed")
        case "/language" if app and form.get("locale") in LOCALES:
            await asyncio.to_thread(app.speak, form["locale"])
