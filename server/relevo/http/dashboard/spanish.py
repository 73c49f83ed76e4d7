"""Every text of the pages in Spanish, by its English; what stands in braces is filled in."""

from __future__ import annotations

SPANISH: dict[str, str] = {
    # The frame
    "To the content": "Ir al contenido",
    "Back to the overview": "Volver al resumen",
    "Request {id}": "Petición {id}",
    "Log out": "Salir",
    "Overview": "Resumen",
    "Main": "Principal",
    "Language": "Idioma",
    "Search": "Buscar",
    "Event, key, owner, phone, token or tender": "Evento, clave, dueño, teléfono, token o licitación",
    "This address, or what was sent to it, is not as it should be.": (
        "Esta dirección, o lo que se le envió, no es como debe ser."
    ),
    "Guide": "Guía",
    "On this page": "En esta página",
    # Logging in
    "Log in": "Entrar",
    "Token": "Token",
    "A viewer's or an operator's token; `relevo token make` makes one.": (
        "El token de un lector o de un operador; `relevo token make` crea uno."
    ),
    "This link was used, is too old, or is not for this machine.": (
        "Este enlace ya se usó, es demasiado viejo o no es para esta máquina."
    ),
    "This form is too old, or the browser keeps no cookies. Try again.": (
        "Este formulario es demasiado viejo, o el navegador no guarda cookies. Inténtelo de nuevo."
    ),
    "This token is unknown, revoked or expired.": "Este token es desconocido, fue revocado o venció.",
    "The dashboard takes a viewer's or an operator's token; this one is of role {role}.": (
        "El panel acepta el token de un lector o de un operador; este es del rol {role}."
    ),
    "The dashboard shows the whole fleet; this token is for project {project} alone.": (
        "El panel muestra la flota entera; este token es solo del proyecto {project}."
    ),
    "This form has too many fields.": "Este formulario tiene demasiados campos.",
    "This form is not of your session.": "Este formulario no es de su sesión.",
    "Open the page again, and send it from there.": "Abra la página otra vez y envíelo desde allí.",
    # Nouns
    "run": "ejecución",
    "runs": "ejecuciones",
    "worker": "proceso",
    "workers": "procesos",
    # Times
    "never": "nunca",
    "just now": "ahora mismo",
    "now": "ahora",
    "{time} ago": "hace {time}",
    "in {time}": "en {time}",
    "{n} days": "{n} días",
}
