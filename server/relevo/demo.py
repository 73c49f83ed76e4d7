"""The embedded default, alive: a few phones with their troubles, and a new sample tender now and then.

A first `make run` then shows deliveries and not only events, receipts within seconds, a phone that unregisters, and a
push that is tried again.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import structlog

from relevo import door
from relevo.config import Settings
from relevo.db import Database
from relevo.door import Installation, Preference

_log = structlog.get_logger("relevo.demo")
_PHONES = (
    ("ana", Preference()),
    ("benja", Preference(keywords=("puente", "ciclovía"))),
    ("carla", Preference(region="Región de Ñuble")),
    ("diego", Preference(rubro_prefix="72", monto_min=100_000_000, moneda="CLP")),
    ("elena!DeviceNotRegistered", Preference(keywords=("luminarias",))),
    ("fabio!MessageRateExceeded*1", Preference(keywords=("plaza",))),
)
"""Who asks for what; after the `!` stands what the sandbox does to a phone: one is gone, one is tried again once."""
_FAMILY = UUID("5c6f6b9e-8f0b-4f0e-9d0a-72656c65766f")
_SAMPLE = Path(__file__).parent / "sources" / "sample"
_NEWS_S = 30.0
_WORKS = (
    ("Construcción de un puente peatonal en {}", "72141104", 612_500_000),
    ("Mejoramiento de la plaza de {}", "72102900", 143_000_000),
    ("Recambio de luminarias en {}", "72151501", 88_400_000),
    ("Suministro de combustible para vehículos de {}", "15101506", 24_300_000),
    ("Reposición de veredas en {}", "72141003", 97_800_000),
    ("Servicio de alimentación escolar en {}", "90101603", 51_200_000),
    ("Prolongación de la ciclovía de {}", "72141003", 268_000_000),
)
_TOWNS = (
    ("San Fabián", "Región de Ñuble"),
    ("Puerto Claro", "Región de Valparaíso"),
    ("Los Aromos", "Región Metropolitana de Santiago"),
    ("Villa del Río", "Región del Maule"),
    ("Quillón Alto", "Región de Ñuble"),
)


def wanted(settings: Settings) -> bool:
    """Tell whether this process runs on nothing but defaults: the embedded server and the bundled sample."""
    return settings.database_url is None and settings.sources == ("folder",) and settings.folder_source_dir is None


def register_phones(database: Database) -> None:
    """Register the demo's phones, the same ones every time."""
    with database.transaction() as connection:
        for name, preference in _PHONES:
            owner = name.partition("!")[0]
            phone = Installation(
                f"ExponentPushToken[demo-{name}]", uuid5(_FAMILY, name), platform="android", owner=owner
            )
            door.set_preference(connection, door.register(connection, phone), "default", preference)


def tender(number: int) -> dict[str, Any]:
    """Make up a tender: the same one for the same number, and thirty-five before anything comes again."""
    work, rubro, monto = _WORKS[number % len(_WORKS)]
    town, region = _TOWNS[number % len(_TOWNS)]
    return {
        "codigo": f"5100-{number}-LE26",
        "nombre": work.format(town),
        "organismo": f"Municipalidad de {town}",
        "region": region,
        "monto": monto + 1_000_000 * (number % 13),
        "moneda": "CLP",
        "rubros": [rubro],
        "publicada_hace_minutos": 1,
        "cierra_en_dias": 5 + number % 20,
    }


class News:
    """Drops a new tender into the sample's folder now and then, as long as the demo runs."""

    def __init__(self, settings: Settings, every_s: float = _NEWS_S) -> None:
        self.folder = settings.sample_folder
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="demo", daemon=True)

    def start(self) -> None:
        """Wait for the cycles."""

    def watch(self, *_: object) -> None:
        """Begin, now that somebody reads the folder."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _live(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.drop()
            except OSError as error:
                _log.warning("demo_tender_not_written", error=type(error).__name__)

    def drop(self) -> None:
        """Add one tender to the folder."""
        file = self.folder / "new.jsonl"
        number = 1 + (file.read_bytes().count(b"\n") if file.exists() else 0)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(tender(number), ensure_ascii=False) + "\n")


def lay_out(settings: Settings) -> None:
    """Copy the bundled sample beside the embedded database, where more can be dropped."""
    settings.sample_folder.mkdir(parents=True, exist_ok=True)
    for file in _SAMPLE.glob("*.jsonl"):
        if not (there := settings.sample_folder / file.name).exists():
            there.write_bytes(file.read_bytes())
