"""The configuration of a database, written as the file that would make it."""

from __future__ import annotations

from typing import Any

import yaml

from relevo.access import api_tokens
from relevo.config_file.applying import State
from relevo.config_file.reading import SCALARS


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML has no types
    """Puts into quotes also what YAML 1.2 alone takes for a number."""


for _tag, _pattern, _first in SCALARS:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def written(state: State) -> str:
    """Return the file that sets what a database has; tokens of one name and several roles are left out."""
    file: dict[str, Any] = {"event_types": {}, "categories": {}, "news": {}, "tokens": {}, "projects": {}}
    for key, value in state.items():
        part = file if key.project is None else file["projects"].setdefault(key.project, {})
        match key.kind:
            case "event_type":
                part["event_types"][key.name] = value
            case "words":
                part["event_types"].setdefault(key.name, {})["words"] = value
            case "category":
                part["categories"][key.name] = value
            case "language" | "quiet_hours":
                part[key.kind] = value
            case "cap":
                part.setdefault("caps", []).append(value)
            case "news":
                part.setdefault("news", {})[key.name] = value
            case "token" if value in api_tokens.ROLES:
                part.setdefault("tokens", {})[key.name] = value
    told = {name: value for name, value in file.items() if value}
    return yaml.dump(told, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120) if told else ""
