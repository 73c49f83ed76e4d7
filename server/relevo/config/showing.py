"""Shows settings to a person: as rows, and as the `.env.example`."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from pydantic.fields import FieldInfo

from relevo.config.setting import TIERS, Tier, bounds_of, show, tier_of
from relevo.config.settings import THEMES, Origin, Settings, fields_of

_HEAD = """\
# What an installation decides, each with its default. Copy this to .env and uncomment what should differ;
# variables of the environment win over .env, and an empty value counts as unset.
# The other settings are named at the end; `relevo config --all` and server/docs/settings.md say what they mean.
"""


class SettingRow(NamedTuple):
    """One setting as a person reads it."""

    name: str
    value: str
    default: str
    meaning: str
    source: Origin
    tier: Tier
    theme: str
    bounds: str


def describe(settings: Settings) -> list[SettingRow]:
    """List every setting with its value, default, meaning and where its value came from."""
    return [
        SettingRow(
            name.upper(),
            show(getattr(settings, name)),
            _default(field),
            field.description or "",
            _source(settings, name, field),
            tier_of(field),
            (theme.__doc__ or "").rstrip("."),
            "{} to {}".format(*bounds) if (bounds := bounds_of(field)) else "",
        )
        for theme in THEMES
        for name, field in fields_of(theme).items()
    ]


def example() -> str:
    """Write the `.env.example`: every setting of the first tier, its default commented out, and the others' names."""
    parts = [_HEAD]
    for theme in THEMES:
        rows = [_example(name, field) for name, field in fields_of(theme).items() if tier_of(field) == "everyday"]
        parts += [f"# --- {(theme.__doc__ or '').rstrip('.')} ---\n", *rows] if rows else []
    parts += [_others(tier) for tier in TIERS if tier != "everyday"]
    return "\n".join(parts)


def _example(name: str, field: FieldInfo) -> str:
    default, meaning = field.default_factory, f"# {field.description}"
    if bounds := bounds_of(field):
        meaning += f" From {bounds[0]} to {bounds[1]}."
    if default:
        meaning += f"\n# Default: {default}."
    return f"{meaning}\n# {name.upper()}={'' if default else _default(field)}\n"


def _others(tier: Tier) -> str:
    names = [name.upper() for theme in THEMES for name, field in fields_of(theme).items() if tier_of(field) == tier]
    listed = f"{tier.capitalize()}, {TIERS[tier]}: {', '.join(names)}."
    return textwrap.fill(listed, 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False) + "\n"


def _default(field: FieldInfo) -> str:
    if field.default_factory:
        return str(field.default_factory)
    return "" if field.default is None else show(field.default)


def _source(settings: Settings, name: str, field: FieldInfo) -> Origin:
    if name in settings.origins:
        return settings.origins[name]
    nominal = getattr(field.default_factory, "nominal", None)
    return "derived" if field.default_factory and getattr(settings, name) != nominal else "default"
