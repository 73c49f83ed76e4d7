"""All settings of a process as one frozen object, and as rows that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relevo.config.archive import Archive
from relevo.config.database import Database
from relevo.config.http import Http
from relevo.config.installation import Installation
from relevo.config.outbox import Outbox
from relevo.config.push import Push
from relevo.config.setting import Theme, Tier, bounds_of, show, tier_of
from relevo.config.sign_on import SignOn
from relevo.config.sources import Sources
from relevo.config.workers import Workers
from relevo.core.proxies import Proxies

Origin = Literal["environment", ".env", "derived", "default"]
THEMES: tuple[type[Theme], ...] = (Database, Installation, Push, Sources, Workers, Outbox, Http, SignOn, Archive)


# A default may follow from settings of the themes to the right of its own: they are checked first.
class Settings(Archive, SignOn, Http, Sources, Workers, Push, Installation, Database, Outbox):
    """All settings of one process, validated and frozen; made by `load`."""

    model_config = SettingsConfigDict(defer_build=False)

    # Not settings: what `load` noticed.
    origins: Mapping[str, Origin] = {}
    warnings: tuple[str, ...] = ()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing: a `Settings` made in code has what it was given, and `load` reads the environment."""
        return (init_settings,)

    @property
    def proxies(self) -> Proxies:
        """The proxies through which the world is reached."""
        return Proxies(self.http_proxy, self.https_proxy, self.no_proxy or ())

    @property
    def sample_folder(self) -> Path:
        """Where the demo's tenders lie, beside the embedded database."""
        return self.relevo_data_dir / "sample"

    def __repr_args__(self) -> Iterator[tuple[str, str]]:
        """Show every setting without what is secret in it."""
        return ((name, show(getattr(self, name))) for name in fields_of(type(self)))


def fields_of(model: type[Theme]) -> dict[str, FieldInfo]:
    """Return the settings of a class by name, without what `load` noticed."""
    return {name: field for name, field in model.model_fields.items() if field.description}


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


def _default(field: FieldInfo) -> str:
    if field.default_factory:
        return str(field.default_factory)
    return "" if field.default is None else show(field.default)


def _source(settings: Settings, name: str, field: FieldInfo) -> Origin:
    if name in settings.origins:
        return settings.origins[name]
    nominal = getattr(field.default_factory, "nominal", None)
    return "derived" if field.default_factory and getattr(settings, name) != nominal else "default"
