"""Sources of tenders: which are read, how often, and within which limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, SecretStr

from relevo.config.kinds import ExistingFolder, Name, Names, WebAddress
from relevo.config.setting import MINUTE, SECOND, Derived, Theme, between, everyday, expert, tuning

SOURCES = ("chilecompra", "chilecompra-web", "ocds", "folder")
NO_SOURCES = "none"
_SAMPLE = ("folder",)
REJECT_ATTEMPTS = 20
"""How often a reject is tried again by itself: some days."""


def _sources(names: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(names))
    if chosen == (NO_SOURCES,):
        return ()
    if not set(chosen) <= set(SOURCES):
        raise ValueError(f"must be names out of {', '.join(SOURCES)}, or {NO_SOURCES}")
    return chosen


def _own_interval(what: str) -> Any:
    return tuning(f"How often Relevo reads {what}. Default: WORKER_INTERVAL_MINUTES.")


def _configured(data: dict[str, Any]) -> tuple[str, ...]:
    """Return the sources for which something is set; with no setting at all, the sample."""
    set_for = {
        "chilecompra": data["chilecompra_ticket"],
        "chilecompra-web": data["chilecompra_web_enabled"],
        "ocds": data["ocds_url"] or data["ocds_folder"],
        "folder": data["folder_source_dir"],
    }
    found = tuple(name for name, value in set_for.items() if value)
    # Invented tenders are for the embedded demo alone, never for somebody's real database.
    return found or (_SAMPLE if data["database_url"] is None else ())


class Sources(Theme):
    """Sources of tenders."""

    chilecompra_ticket: SecretStr | None = everyday("The ticket for ChileCompra's API.")
    ocds_url: WebAddress | None = everyday("The address of OCDS packages. Relevo follows their links to the next page.")
    ocds_folder: ExistingFolder | None = tuning("A folder with OCDS packages, instead of OCDS_URL.")
    folder_source_dir: ExistingFolder | None = everyday(
        "The folder with JSON lines files of tenders. Without it Relevo reads a bundled sample."
    )
    chilecompra_web_enabled: bool = tuning("Whether Relevo may read Mercado Público's search page.", False)
    sources: Annotated[Names, AfterValidator(_sources)] = everyday(
        f"The sources of tenders (comma-separated): {', '.join(SOURCES)}, or {NO_SOURCES}.",
        Derived(
            _configured,
            f"those whose ticket, address or folder is set; without DATABASE_URL {','.join(_SAMPLE)}",
            _SAMPLE,
        ),
    )
    worker_interval_minutes: Annotated[int, between(1, 1_440)] = tuning(
        "How often Relevo reads each source without an interval of its own.", 2
    )
    chilecompra_interval_minutes: Annotated[int | None, between(1, 1_440)] = _own_interval("ChileCompra's API")
    chilecompra_web_interval_minutes: Annotated[int | None, between(1, 1_440)] = _own_interval(
        "Mercado Público's search page"
    )
    ocds_interval_minutes: Annotated[int | None, between(1, 1_440)] = _own_interval("OCDS packages")
    ingest_notify_first_run: bool = tuning(
        "Whether a source's first read makes events, too, instead of only storing its items.", False
    )
    ingest_catchup_days: Annotated[int, between(1, 3_650)] = tuning(
        "Missed days of a source that Relevo reads after an outage.", 30
    )
    folder_source_done_dir: ExistingFolder | None = tuning(
        "The folder for files of FOLDER_SOURCE_DIR a minute after Relevo read them. Without it they stay."
    )
    ocds_done_dir: ExistingFolder | None = tuning(
        "The folder for files of OCDS_FOLDER a minute after Relevo read them. Without it they stay."
    )
    ocds_namespace: Name | None = expert(
        "The register of the OCDS tenders. Default: the prefix of their ocid, and chilecompra for Chile's."
    )
    chilecompra_daily_limit: Annotated[int, between(1, 1_000_000)] = expert(
        "Requests a day of one ticket, counted for the whole fleet.", 10_000
    )
    chilecompra_pace_ms: Annotated[int, between(0, 10 * MINUTE)] = expert(
        "The pause between two requests to ChileCompra; longer while ChileCompra returns errors.",
        3_500,
    )
    chilecompra_base_url: WebAddress = expert(
        "The address of ChileCompra's API.", "https://api.mercadopublico.cl/servicios/v1/publico"
    )
    chilecompra_web_base_url: WebAddress = expert(
        "The address of Mercado Público's search page.", "https://www.mercadopublico.cl/BuscarLicitacion"
    )
    http_timeout_ms: Annotated[int, between(10, 10 * MINUTE)] = expert(
        "The longest request to a source in all.", 30 * SECOND
    )
    http_max_bytes: Annotated[int, between(1_000, 2_000_000_000)] = expert(
        "The largest answer or file of a source, uncompressed.", 50_000_000
    )
