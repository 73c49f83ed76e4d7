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
        "Days after a month's end that its deliveries, journal and events stay in PostgreSQL.", 90
    )
    archive_bucket: Bucket | None = everyday(
        "The S3 bucket for retired months. Without it and ARCHIVE_FOLDER they stay in the database."
    )
    archive_endpoint: WebAddress | None = everyday("The address of an S3-compatible service other than AWS.")
    archive_folder: Folder | None = everyday(
        "The folder for retired months, instead of a bucket.",
        Derived(
            _beside_data, "without DATABASE_URL and ARCHIVE_BUCKET the folder archive in RELEVO_DATA_DIR, else none"
        ),
    )
    archive_region: str | None = tuning("The bucket's region. Default: that of AWS's environment.")
    archive_prefix: Prefix = tuning("The prefix of all objects' keys, in a bucket or folder.", "relevo")
    archive_sse: Literal["none", "AES256", "aws:kms"] = tuning(
        "How the service encrypts objects: none, AES256 or aws:kms.", "none"
    )
    archive_sse_kms_key_id: str | None = tuning("The key for ARCHIVE_SSE=aws:kms.")
    archive_iceberg_uri: CatalogAddress | None = tuning(
        "The Apache Iceberg catalog for exported months: https:// for a REST catalog, postgresql:// or sqlite:/// "
        "for a SQL catalog. It needs the extra iceberg."
    )
    archive_iceberg_warehouse: str | None = tuning("The tables' warehouse in a REST catalog.")
    archive_iceberg_namespace: Name = tuning("The tables' namespace in that catalog.", "relevo")
    archive_grace_days: Annotated[int, between(0, 3_650)] = tuning(
        "Days that a month stays in the database after its export was verified.", 7
    )
    licitaciones_hot_months: Annotated[int, between(1, 1_200)] = tuning(
        "Whole months that tenders stay in PostgreSQL.", 12
    )
    licitaciones_retention_days: Annotated[int | None, between(1, 36_500)] = tuning(
        "Days after a month's end that its tenders stay in PostgreSQL, instead of LICITACIONES_HOT_MONTHS."
    )
    dead_phones_retention_days: Annotated[int, between(1, 36_500)] = tuning(
        "Days that Relevo keeps an unregistered phone, or one with a disabled token, with its owner's name and "
        "preferences.",
        90,
    )
    runs_retention_days: Annotated[int, between(1, 3_650)] = tuning(
        "Days that Relevo keeps finished runs, rejects, incidents and unused projects.", 90
    )
    audit_retention_days: Annotated[int, between(30, 36_500)] = tuning(
        "Days that Relevo keeps entries of the audit log.", 400
    )
    news_retention_days: Annotated[int, between(1, 3_650)] = tuning("Days that Relevo keeps unread news.", 7)
    archive_path_style: bool = expert(
        "Whether the bucket's name is in the path instead of the host name.",
        Derived(lambda data: data["archive_endpoint"] is not None, "true with ARCHIVE_ENDPOINT, else false"),
    )
    archive_timeout_ms: Annotated[int, between(10, 10 * MINUTE)] = expert(
        "How long the archive's service may send nothing within one request.", 30 * SECOND
    )
    archive_part_rows: Annotated[int, between(1, 10_000_000)] = expert("The most rows of a month in one file.", 250_000)
    archive_busy_share_percent: Annotated[int, between(1, 100)] = expert(
        "The share of the time that the export works while others write to the database; 100: it never rests.", 5
    )
