"""The parts of SQL functions that are made of push services' facts; generate_docs.py writes them into their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from relevo.core.known_services import EXPO, NATIVE, SERVICES

FILES = (
    "checks/token_complaint.sql",
    "phones/native_platform.sql",
    "phones/native_services.sql",
    "phones/part_of.sql",
)
"""The files of sql/functions that have such parts."""
PLACE = re.compile(r"(^ *-- ([\w ]+): written by make docs\n).*?(^ *-- /written\n)", re.DOTALL | re.MULTILINE)
_PART = {"platform": "platform", "environment": "environment", "host": "relevo.push_host(token)"}


def filled(text: str) -> str:
    """Return the text of a file with the parts that it has places for."""
    return PLACE.sub(lambda place: f"{place[1]}{_PARTS[place[2]]()}{place[3]}", text)


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{doubled}'"


def _services() -> str:
    return f"  {', '.join(map(_quoted, NATIVE))}\n"


def _platforms() -> str:
    usual = {name: SERVICES[name].platforms[0] if len(SERVICES[name].platforms) == 1 else "unknown" for name in NATIVE}
    return "".join(f"  when {_quoted(name)} then {_quoted(platform)}\n" for name, platform in usual.items())


def _parts() -> str:
    parts = {name: each.part for name, each in SERVICES.items() if each.part}
    return "".join(f"  when {_quoted(name)} then {_PART[part]}\n" for name, part in parts.items())


def _forms(*names: str) -> str:
    """Write what is asked about the form of each service's tokens, and what is said of another form."""
    tokens = {name: SERVICES[name].token for name in names if SERVICES[name].token.form}
    return "".join(
        f"  if provider = {_quoted(name)} and token !~ {_quoted(f'^({each.form})$')} then\n"
        f"    return {_quoted(each.complaint)};\n"
        "  end if;\n"
        for name, each in tokens.items()
    )


_PARTS: Mapping[str, Callable[[], str]] = {
    "push services": _services,
    "platforms": _platforms,
    "parts": _parts,
    "form of Expo": lambda: _forms(EXPO),
    "forms": lambda: _forms(*NATIVE),
}
