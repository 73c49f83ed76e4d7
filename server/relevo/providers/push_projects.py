"""PUSH_PROJECTS_FILE: the credentials of each project by push service, and where a project differs from its service.

What does not fit in the file itself is refused as a whole. A key that cannot be used is the trouble of its project and
push service alone: its last good one stays in force, or nothing is sent there until it is mended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from relevo.core.known_services import SERVICES
from relevo.core.logs import normalise_error
from relevo.core.sending_project import SendingProject
from relevo.providers.project_entry import MAX_SECRET_BYTES, Entry
from relevo.providers.secret_file import SecretFile, Stamp, UnusableFileError, stamp_of

EVERY_OTHER = "*"
"""The name that stands for every project which the file does not name."""
_MAX_PROJECTS = 10_000

KINDS: Mapping[str, type[Entry]] = {name: import_module(f"relevo.providers.{name}.entry").ENTRY for name in SERVICES}
"""The entries by push service: each folder has its own."""
E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class PushProject(Generic[E]):
    """A project's entry for one push service, with its secret; equal ones have the same credentials."""

    name: str
    entry: E
    secret: str = field(repr=False)


class Unusable(NamedTuple):
    """Why nothing of a project can be sent by a push service."""

    code: str
    message: str


Key = tuple[str, str]
"""A push service and a project."""
Check = Callable[[PushProject[Any]], object]
"""Raises ValueError, with words that hold no secret, for a secret that cannot be used."""


class _Read(NamedTuple):
    """The contents of the file and of the files that it names."""

    usable: Mapping[Key, PushProject[Any]]
    troubles: Mapping[Key, str]
    """Of those whose secret cannot be used as it is now."""
    files: Mapping[Path, Stamp]


class PushProjects:
    """The present contents of PUSH_PROJECTS_FILE; `checks` judge each push service's secrets when they are read."""

    def __init__(self, file: Path | None, text: str = "{}", checks: Mapping[str, Check] | None = None) -> None:
        self._folder = file.parent if file else Path()
        self._checks = checks or {}
        self._last: Mapping[Key, PushProject[Any]] = {}
        self._file = SecretFile(file, self._parse, lambda read: read.files) if file else None
        self._fixed = self._parse(text) if file is None else None

    def _now(self) -> _Read:
        read = self._file() if self._file else self._fixed
        assert read is not None
        return read

    def find(self, kind: type[E], project: str) -> PushProject[E] | Unusable:
        """Return a project's credentials for a push service, or why there are none."""
        read = self._now()
        for name in (project, EVERY_OTHER):
            if (kind.provider, name) in read.usable:
                return read.usable[kind.provider, name]
            if trouble := read.troubles.get((kind.provider, name)):
                return Unusable("CredentialUnusable", f"PUSH_PROJECTS_FILE, {name}, {kind.provider}: {trouble}")
        return Unusable("NoCredential", f"PUSH_PROJECTS_FILE has no {kind.provider} for project {project}")

    def all(self, kind: type[E]) -> Mapping[str, PushProject[E]]:
        """Return the projects that have usable credentials for a push service, by name."""
        return {name: found for (provider, name), found in self._now().usable.items() if provider == kind.provider}

    def overrides(self, project: SendingProject) -> Mapping[str, int]:
        """Return where a project differs from its push service's facts."""
        found = self.find(KINDS[project.provider], project.name) if project.provider in KINDS else None
        if not isinstance(found, PushProject):
            return {}
        return found.entry.model_dump(include={"rate_per_second", "connections", "chunk_size"}, exclude_none=True)

    def names(self, provider: str) -> list[str]:
        """Return the projects that the file has for a push service, usable or not."""
        read = self._now()
        return sorted({name for service, name in (*read.usable, *read.troubles) if service == provider})

    def open_files(self) -> list[Path]:
        """Return the files named there that others than their owner may read."""
        return [path for path in self._now().files if path.exists() and path.stat().st_mode & 0o077]

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be used as it is now: where it stands, and why."""
        read = self._now()
        if self._file and self._file.trouble:
            yield "PUSH_PROJECTS_FILE", self._file.trouble
        for (provider, name), trouble in read.troubles.items():
            yield f"PUSH_PROJECTS_FILE, {name}, {provider}", trouble

    def _parse(self, text: str) -> _Read:
        usable: dict[Key, PushProject[Any]] = {}
        troubles: dict[Key, str] = {}
        files: dict[Path, Stamp] = {}
        for name, entry in _entries(text):
            key = entry.provider, name
            try:
                project = PushProject(name, entry, self._secret(entry, files))
                if check := self._checks.get(entry.provider):
                    check(project)
            except ValueError as error:
                troubles[key] = str(error)
                if key in self._last:
                    usable[key] = self._last[key]
            else:
                usable[key] = project
        self._last = usable
        return _Read(usable, troubles, files)

    def _secret(self, entry: Entry, files: dict[Path, Stamp]) -> str:
        named = entry.secret_file()
        if named is None:
            return entry.secret()
        path = self._folder / Path(named).expanduser()
        files[path] = stamp_of(path)
        try:
            with path.open(encoding="utf-8") as file:
                read = file.read(MAX_SECRET_BYTES + 1)
        except (OSError, UnicodeDecodeError, RuntimeError) as error:
            raise ValueError(f"its file {path.name} cannot be read ({type(error).__name__})") from None
        if len(read) > MAX_SECRET_BYTES:
            raise ValueError(f"its file {path.name} has more than {MAX_SECRET_BYTES} characters")
        return read


def _entries(text: str) -> Iterator[tuple[str, Entry]]:
    """Yield what the file says, project by project and push service by push service."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableFileError(f"it is no JSON ({normalise_error(error, 100)})") from None
    if not isinstance(document, dict) or len(document) > _MAX_PROJECTS:
        raise UnusableFileError(f"it must be a JSON object of at most {_MAX_PROJECTS} projects")
    for name, services in document.items():
        if not 0 < len(name) <= 200:  # noqa: PLR2004 as long as a project's name may be
            raise UnusableFileError("a project's name must have 1 to 200 characters")
        if not isinstance(services, dict):
            raise UnusableFileError(f"{name} must be an object of push services: {', '.join(KINDS)}")
        for provider, given in services.items():
            yield name, _entry(name, provider, given)


def _entry(name: str, provider: str, given: object) -> Entry:
    if provider not in KINDS:
        raise UnusableFileError(f"{name} has an unknown push service {provider[:50]!r}; known: {', '.join(KINDS)}")
    kind = KINDS[provider]
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))[:80]
        place = ", ".join(part for part in (name, provider, key) if part)
        if first["type"] == "extra_forbidden":
            raise UnusableFileError(f"{place} is no key; known: {', '.join(kind.model_fields)}") from None
        raise UnusableFileError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
