"""The sandbox's pages in the reader's language, English or Spanish, as the dashboard has it."""

from __future__ import annotations

from contextvars import ContextVar

COOKIE = "relevo_language"
"""The dashboard's own: a browser sends it to every port of a machine."""
SPANISH = {
    "What the phones got": "Lo que recibieron los teléfonos",
    "{rate} messages/s per project": "{rate} mensajes/s por proyecto",
    "no rate limit": "sin límite de ritmo",
    "receipts after {seconds} s": "recibos después de {seconds} s",
    "access token required": "exige un token de acceso",
    "no access token": "sin token de acceso",
    "{times} times as fast": "{times} veces más rápido",
    "latency {ms} ms": "latencia {ms} ms",
    "Requests": "Peticiones",
    "Messages": "Mensajes",
    "Delivered": "Entregados",
    "Phones": "Teléfonos",
    "Duplicates": "Duplicados",
    "Error tickets": "Tickets con error",
    "Receipts": "Recibos",
    "Rate-limited": "Frenadas por ritmo",
    "Peak in flight": "Máximo a la vez",
    "Faults in force": "Fallas activas",
    "on receipts": "en los recibos",
    "{n} times more": "{n} veces más",
    "for {seconds} s": "por {seconds} s",
    "the last {n} of {all}": "los últimos {n} de {all}",
    "1 time": "1 vez",
    "{n} times": "{n} veces",
    ", {n} repeated": ", {n} repetidos",
    "The message itself is not kept.": "El mensaje mismo no se guarda.",
    "The messages themselves are not kept.": "Los mensajes mismos no se guardan.",
    "Nothing received yet.": "Todavía no recibió nada.",
    "Off: {n} waiting": "Apagado: {n} en espera",
    ", {n} dropped": ", {n} descartados",
    "Switch off": "Apagar",
    "Switch on": "Encender",
    "Tap": "Tocar",
    "Dismiss": "Descartar",
    "Tapped": "Tocado",
    "Tapped, and read in the inbox": "Tocado, y leído en la bandeja",
    "Tapped; Relevo could not be told": "Tocado; no se pudo avisar a Relevo",
    "Dismissed": "Descartado",
    "Language": "Idioma",
    "Change": "Cambiar",
    "Relevo sends to them with these settings:": "Relevo les envía con estos ajustes:",
    "A token for a phone, or a subscription of a browser:": (
        "Un token de un teléfono, o la suscripción de un navegador:"
    ),
    "No title": "Sin título",
    "As it came": "Tal como llegó",
    "Event {id}": "Evento {id}",
    "Delivery {id}": "Entrega {id}",
    "Phone": "Teléfono",
    "it arrived once": "llegó una vez",
    "it arrived {n} times": "llegó {n} veces",
    "it arrived {n} times or more": "llegó {n} veces o más",
    "No phone of this sandbox got it: it was refused or not sent yet, or the sandbox was started since then.": (
        "Ningún teléfono de este sandbox lo recibió: fue rechazado o aún no se envía, o el sandbox partió después."
    ),
    "No message has reached this phone.": "Ningún mensaje ha llegado a este teléfono.",
    "No phone has received anything yet.": "Ningún teléfono ha recibido nada todavía.",
    "Send to this address, as {setting}, and watch messages arrive here.": (
        "Envíe a esta dirección, como {setting}, y vea llegar aquí los mensajes."
    ),
}
_spoken: ContextVar[str] = ContextVar("sandbox_language", default="en")


def t(english: str, /, **parts: object) -> str:
    """Say a text in the language of the page."""
    told = SPANISH.get(english, english) if _spoken.get() == "es" else english
    return told.format(**parts) if parts else told


def spoken() -> str:
    """Return the language of the page that is being written."""
    return _spoken.get()


def speak(cookies: str, accepted: str) -> None:
    """Write this page in the language somebody chose in the dashboard, else the first of ours the browser asks for."""
    chosen = [part.partition("=")[2] for part in cookies[:4000].split("; ") if part.startswith(f"{COOKIE}=")]
    asked = [part.split(";")[0].strip()[:2].lower() for part in accepted[:200].split(",")]
    _spoken.set(next((each for each in (*chosen, *asked) if each in ("en", "es")), "en"))
