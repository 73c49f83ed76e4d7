"""A few phones for the embedded default, so that a first `make run` shows deliveries and not only events."""

from __future__ import annotations

from uuid import UUID

from relevo import door
from relevo.config import Settings
from relevo.db import Database
from relevo.door import Installation, Preference

_PHONES = (
    ("ana", Preference()),
    ("benja", Preference(keywords=("puente", "ciclovía"))),
    ("carla", Preference(region="Región de Ñuble")),
    ("diego", Preference(rubro_prefix="72", monto_min=100_000_000, moneda="CLP")),
)


def wanted(settings: Settings) -> bool:
    """Tell whether this process runs on nothing but defaults: the embedded server and the bundled sample."""
    return settings.database_url is None and settings.sources == ("folder",) and settings.folder_source_dir is None


def register_phones(database: Database) -> None:
    """Register the demo's phones, the same ones every time."""
    with database.transaction() as connection:
        for number, (name, preference) in enumerate(_PHONES, start=1):
            phone = Installation(f"ExponentPushToken[demo-{name}]", UUID(int=number), platform="android")
            door.set_preference(connection, door.register(connection, phone), "default", preference)
