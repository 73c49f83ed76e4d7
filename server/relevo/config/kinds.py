"""The kinds of values that settings have, and what each of them must be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator

_MAX_PREFIX = 100
_CRON_FIELDS = 5
_ANY_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def _address(text: str) -> str:
    if not _is_address(text):
        wanted = "must be a PostgreSQL address such as postgresql://user:password@host:5432/database"
        raise ValueError(f"{wanted}, special characters in the password percent-encoded")
    return text


def _is_address(text: str) -> bool:
    # libpq's own complaint may quote parts of a password, so it is not passed on.
    try:
        parts = conninfo_to_dict(text)
    except (ProgrammingError, UnicodeError):
        return False
    # An unescaped @ or : in a password ends up here, and would be printed when connecting fails.
    host, ports = str(parts.get("host") or ""), str(parts.get("port") or "")
    return "@" not in host[1:] and all(port.isdecimal() for port in ports.split(",") if port)


def check_cron(text: str) -> str:
    """Return a cron expression as it is; raises ValueError if it is none, or one that no day meets."""
    try:
        next(CronSim(text if len(text.split()) == _CRON_FIELDS else "", _ANY_DAY))
    except (CronSimError, StopIteration, ValueError):
        wanted = "must be a cron expression of five fields that some day meets, such as 17 3 * * *"
        raise ValueError(wanted) from None
    return text


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be the name of a time zone such as America/Santiago") from None
    return text


def _names(given: object) -> object:
    if not isinstance(given, str):
        return given
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise ValueError("must be names separated by commas")
    return names


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must be a web address such as https://example.org/path")
    return text


def _proxy(text: str) -> str:
    address = text if "://" in text else f"http://{text}"
    try:
        _web_address(address)
        parts = urlsplit(address)
        fits = parts.scheme == "http" and parts.path in ("", "/") and not parts.query and not parts.fragment
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("must be the address of an HTTP proxy such as http://proxy.example:3128")
    return address.rstrip("/")


def _lower(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


def text_like(pattern: str, wanted: str) -> AfterValidator:
    """Return a check that a text matches a pattern as a whole; `wanted` says what would be right."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {wanted}")
        return text

    return AfterValidator(check)


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*", text) or len(text) > _MAX_PREFIX:
        raise ValueError("must be names out of A-Z a-z 0-9 . _ = - with single slashes between them")
    if {".", ".."} & set(text.split("/")):
        raise ValueError("must be names below the bucket or folder, none of them . or ..")
    return text


def _folder(path: Path) -> Path:
    with _unreachable("must be a folder that can be reached"):
        path = path.expanduser()
        if path.exists() and not path.is_dir():
            raise ValueError("must be a folder, not a file")
        return path


def _existing_folder(path: Path) -> Path:
    with _unreachable("must be a folder that exists"):
        path = path.expanduser()
        if not path.is_dir():
            raise ValueError("must be a folder that exists")
        return path


def _existing_file(path: Path) -> Path:
    with _unreachable("must be a file that exists"):
        path = path.expanduser()
        if not path.is_file():
            raise ValueError("must be a file that exists")
    return path


def _secret_file(path: Path) -> Path:
    path = _existing_file(path)
    with _unreachable("must be a file that exists"):
        if path.stat().st_mode & 0o077:
            raise ValueError("must be a file that nobody but its owner may read: chmod 600")
    return path


@contextmanager
def _unreachable(complaint: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise ValueError(f"{complaint}, and that this user may reach: run this as the service's user") from None
    except (OSError, RuntimeError):
        raise ValueError(complaint) from None


Address = Annotated[str, AfterValidator(_address)]
Bucket = Annotated[
    str,
    text_like(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", "the name of a bucket, 2 to 63 characters out of A-Z a-z 0-9 . _ -"),
]
CatalogAddress = Annotated[
    str,
    text_like(
        r"(?:https?|postgresql|sqlite)://\S{1,1000}",
        "the address of an Iceberg catalog, beginning with https://, http://, postgresql:// or sqlite:///",
    ),
]
Cron = Annotated[str, AfterValidator(check_cron)]
ExistingFile = Annotated[Path, AfterValidator(_existing_file)]
ExistingFolder = Annotated[Path, AfterValidator(_existing_folder)]
Folder = Annotated[Path, AfterValidator(_folder)]
FunctionName = Annotated[str, text_like(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "module:function, as in mine:parts")]
Host = Annotated[str, text_like(r"[A-Za-z0-9.:_-]{1,255}", "a host name or an address such as 127.0.0.1")]
LogFormat = Annotated[Literal["console", "json"], BeforeValidator(_lower)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]
Name = Annotated[str, text_like(r"[A-Za-z0-9._:-]{1,100}", "1 to 100 characters out of A-Z a-z 0-9 . _ : -")]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Prefix = Annotated[str, AfterValidator(_prefix)]
Project = Annotated[str, text_like(r"(?s).{1,200}", "a project's name, of at most 200 characters")]
ProxyAddress = Annotated[str, AfterValidator(_proxy)]
SecretFile = Annotated[Path, AfterValidator(_secret_file)]
Timezone = Annotated[str, AfterValidator(_timezone)]
WebAddress = Annotated[str, AfterValidator(_web_address)]
