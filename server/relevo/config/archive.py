"""Retention and archive: how long what is kept in the database, and where months go after that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from relevo.config.kinds import Bucket, CatalogAddress, Folder, Name, Prefix, WebAddress
from relevo.config.setting import MINUTE, SECOND, Derived, Theme, between, everyday, expert, tuning


def _beside_data(data: dict[str, Any]) -> Path | None:
    """Return the folder of the embedded demo, or None where real services are set."""
    alone = data["database_url"] is None and data["archive_bucket"] is None
    return data["relevo_data_dir"] / "archive" if alone else None


class Archive(Theme):
    """Retention and archive."""

    deliveries_retention_days: Annotated[int, between(1, 36_500)] = everyday(
        "For how many days after a month's end its deliveries, journal and events stay hot.", 90
    )
    archive_bucket: Bucket | None = everyday(
        "The S3 bucket to which retired months are exported; without it and ARCHIVE_FOLDER they stay in the database."
    )
    archive_endpoint: WebAddress | None = everyday("The address of an S3-compatible service, for other than AWS.")
    archive_folder: Folder | None = everyday(
        "The folder to which retired months are exported, instead of a bucket.",
        Derived(
            _beside_data, "without DATABASE_URL and ARCHIVE_BUCKET the folder archive in RELEVO_DATA_DIR, else none"
        ),
    )
    archive_region: str | None = tuning("The bucket's region; without it as the environment of AWS says.")
    archive_prefix: Prefix = tuning("What the keys of all objects begin with, in a bucket or folder.", "relevo")
    archive_sse: Literal["none", "AES256", "aws:kms"] = tuning(
        "How the service encrypts what is stored: none, AES256 or aws:kms.", "none"
    )
    archive_sse_kms_key_id: str | None = tuning("The key to encrypt with; goes with ARCHIVE_SSE=aws:kms.")
    archive_iceberg_uri: CatalogAddress | None = tuning(
        "The Apache Iceberg catalog in which exported months are registered: https:// of a REST catalog, postgresql:// "
        "or sqlite:/// of a SQL catalog; needs the extra iceberg."
    )
    archive_iceberg_warehouse: str | None = tuning(
        "The warehouse of a REST catalog that the tables belong to, by the name it has there; goes with "
        "ARCHIVE_ICEBERG_URI."
    )
    archive_iceberg_namespace: Name = tuning("The namespace of the tables in that catalog.", "relevo")
    archive_grace_days: Annotated[int, between(0, 3_650)] = tuning(
        "For how many days a month stays in the database after its export was verified.", 7
    )
    licitaciones_hot_months: Annotated[int, between(1, 1_200)] = tuning(
        "For how many whole months tenders stay hot.", 12
    )
    licitaciones_retention_days: Annotated[int | None, between(1, 36_500)] = tuning(
        "For how many days after a month's end its tenders stay hot, in place of LICITACIONES_HOT_MONTHS."
    )
    dead_phones_retention_days: Annotated[int, between(1, 36_500)] = tuning(
        "For how many days a phone is kept, with its owner's name and preferences, after its token was disabled or it "
        "was unregistered.",
        90,
    )
    runs_retention_days: Annotated[int, between(1, 3_650)] = tuning(
        "For how many days finished runs are kept, and with them rejects, incidents and projects that nothing uses.", 90
    )
    audit_retention_days: Annotated[int, between(30, 36_500)] = tuning(
        "For how many days the audit log keeps what operators did.", 400
    )
    news_retention_days: Annotated[int, between(1, 3_650)] = tuning(
        "For how many days news that nobody read are kept.", 7
    )
    archive_path_style: bool = expert(
        "Whether the bucket's name stands in the path rather than in the host name.",
        Derived(lambda data: data["archive_endpoint"] is not None, "true with ARCHIVE_ENDPOINT, else false"),
    )
    archive_timeout_ms: Annotated[int, between(10, 10 * MINUTE)] = expert(
        "How long the archive's service may be silent within one request, in milliseconds.", 30 * SECOND
    )
    archive_part_rows: Annotated[int, between(1, 10_000_000)] = expert(
        "How many rows of a month one file holds at most.", 250_000
    )
    archive_busy_share_percent: Annotated[int, between(1, 100)] = expert(
        "The share of the time that export takes while others write to the database; 100: it does not step back.", 5
    )
