"""All settings of a process as one frozen object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relevo.config.archive import Archive
from relevo.config.database import Database
from relevo.config.http import Http
from relevo.config.installation import Installation
from relevo.config.outbox import Outbox
from relevo.config.push import Push
from relevo.config.setting import Theme, show
from relevo.config.sources import Sources
from relevo.config.workers import Workers
from relevo.core.proxies import Proxies

Origin = Literal["environment", ".env", "derived", "default"]
THEMES: tuple[type[Theme], ...] = (Database, Installation, Push, Sources, Workers, Outbox, Http, Archive)


# A default may follow from settings of the themes to the right of its own: they are checked first.
class Settings(Archive, Http, Sources, Workers, Push, Installation, Database, Outbox):
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
