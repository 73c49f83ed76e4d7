"""Opening the configured database, or the embedded one while no DATABASE_URL is set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from relevo.config import Settings
from relevo.core.errors import ConfigError
from relevo.database.pool import Database


@contextmanager
def database(settings: Settings, application_name: str = "relevo") -> Iterator[Database]:
    """Open the configured database, or the embedded one while no DATABASE_URL is set."""
    if settings.database_url is not None:
        direct = settings.database_direct_url or settings.database_url
        with closing(Database(settings.database_url, direct, settings, application_name)) as opened:
            yield opened
        return
    from relevo import embedded  # noqa: PLC0415 a command on a server of its own needs none of it

    with (
        embedded.acquire(embedded_folder(settings), settings.relevo_postgres_bin) as server,
        closing(Database(server.dsn, server.dsn, settings, application_name)) as opened,
    ):
        yield opened


def embedded_folder(settings: Settings) -> Path:
    """Return where the embedded server lives; it is made only where that was asked for, else it has to be there."""
    folder = settings.relevo_data_dir / "postgres"
    asked_for = settings.relevo_demo or "relevo_data_dir" in settings.origins
    if not asked_for and not folder.exists():
        raise ConfigError(
            "DATABASE_URL is not set.",
            hint="Set it to your PostgreSQL; or try Relevo on an embedded one: `relevo run --demo`. If one runs "
            "already, go to the folder where it was started, or set RELEVO_DATA_DIR to its data.",
        )
    return folder
