"""The texts of event types: read from a file or a request, checked, saved as a version, shown and previewed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from relevo.client import checks
from relevo.client.connections.refusals import refusals
from relevo.core import digest_texts, patterns, queries, wordings
from relevo.core.errors import InvalidInputError, NotFoundError, UsageError
from relevo.core.known_services import EXPO, SERVICES
from relevo.core.locales import LOCALE, zone_named
from relevo.core.model import DIGEST
from relevo.core.patterns import MOST_PATTERN, Argument, Choice, Kind, PatternError
from relevo.core.wordings import FIELDS, MOST_ARGUMENTS, MOST_BYTES, MOST_LOCALES, Arguments, RenderError, Text, Wording
from relevo.database.pool import Connection, Database
from relevo.operators import audit
from relevo.operators.reading import Row, fetch

_SQL = queries.load("words")
_MOST_FILE, _MOST_PROJECT = 1_000_000, 200
_GIVEN = {"type", "default", "arguments", "texts"}
_HINT = "Nothing was saved; correct it and try again."


class Saved(NamedTuple):
    """A version of a type's texts, and whether it is new: the same again is the same version."""

    version: int
    created: bool


def read_file(file: Path) -> Mapping[str, Any]:
    """Read the texts of a type from a .toml or .json file."""
    try:
        if file.stat().st_size > _MOST_FILE:
            raise UsageError(f"{file} is larger than {_MOST_FILE} bytes.", hint="A file holds the texts of one type.")
        text = file.read_text(encoding="utf-8")
        read = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text, parse_float=Decimal)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", hint="Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", hint="It must be TOML (.toml) or JSON.") from error
    if not isinstance(read, dict):
        raise UsageError(f"{file} holds no object.", hint='It begins with type = "…", or { "type": … }.')
    return read


def parse(given: Mapping[str, Any]) -> Wording:
    """Return the texts of a type as they are given; raises InvalidInputError with the first thing that is wrong."""
    wordings.need()
    _refuse(next(_shape_complaints(given), None))
    said = given["texts"]
    texts = {locale: dict(said[text] if isinstance(text, str) else text) for locale, text in said.items()}
    default = given.get("default") or next(iter(texts))
    named = (given.get("arguments") or {}).items()
    samples = {name: value.isoformat() if isinstance(value, date) else value for name, value in named}  # as in TOML
    if "default" not in given and len(texts) > 1:
        _refuse("default must be given: the locale whose text is shown where no other fits")
    if default not in texts:
        _refuse(f"default must be one of the locales of texts, got {checks.quoted(default)}")
    wording = Wording(str(given["type"]), str(default), texts, {}, samples).tried()
    if wording.weight > MOST_BYTES:
        _refuse(f"texts must have at most {MOST_BYTES} bytes in all languages together, got {wording.weight}")
    kinds = _kinds(wording)
    _refuse(wording.fault)
    _check_styles(wording)
    return replace(wording, kinds=kinds, zoned="time" in kinds.values())


def check(wording: Wording, providers: Iterable[str]) -> dict[str, Text]:
    """Render every locale with the sample, and weigh it for some push services; raises InvalidInputError."""
    try:
        rendered = wording.render_all(wording.samples)
    except RenderError as error:
        raise InvalidInputError(f"{error}.", hint=_HINT) from None
    usual = SERVICES[EXPO]
    limits = {name: SERVICES.get(name, usual).max_bytes for name in providers}
    smallest = min(limits, key=lambda name: (limits[name], name), default=EXPO)
    most = limits.get(smallest, usual.max_bytes)
    for locale, text in rendered.items():
        push = {"subtitle": text.subtitle} if text.subtitle else {}
        weight = checks.weight({"title": text.title, "body": text.body, "push": push})
        if weight > most:
            _refuse(f"{locale} makes a push of {weight} bytes, and {smallest} takes {most}")
    if (together := sum(text.bytes for text in rendered.values())) > wordings.MOST_TOGETHER:
        _refuse(f"all languages together make {together} bytes, and {wordings.MOST_TOGETHER} are the most")
    return rendered


def preview(wording: Wording, arguments: Arguments | None = None, zone: str | None = None) -> dict[str, Text]:
    """Render every locale, with the sample where an argument is not given; raises InvalidInputError."""
    if zone is not None and zone_named(zone).lower() != zone.lower():
        _refuse(f"timezone must be the IANA name of a time zone, such as America/Santiago, got {checks.quoted(zone)}")
    try:
        return wording.render_all({**wording.samples, **(arguments or {})}, zone)
    except RenderError as error:
        raise InvalidInputError(f"{error}.", hint="The arguments must have the kinds of the sample's.") from None


def providers_of(connection: Connection) -> list[str]:
    """List the push services that this fleet serves."""
    return [row[0] for row in connection.execute(_SQL["list_providers"]).fetchall()]


def save(database: Database, wording: Wording) -> Saved:
    """Check texts, save them as the next version of their type, and have that recorded."""
    with database.connection() as connection:
        providers = providers_of(connection)
    return save_checked(database, wording, check(wording, providers))


def save_checked(database: Database, wording: Wording, rendered: Mapping[str, Text]) -> Saved:
    """Save texts that `check` rendered as the next version of their type, and have that recorded."""
    with audit.recorded(database, "save_words", event_type=wording.event_type) as result:
        with database.transaction() as connection:
            saved = write(connection, wording, rendered)
        result.update(saved._asdict())
    return saved


def write(connection: Connection, wording: Wording, rendered: Mapping[str, Text]) -> Saved:
    """Write texts that `check` rendered as the next version of their type, in the caller's transaction."""
    before = _read(connection, wording.event_type, None)
    given = {
        "type": wording.event_type,
        "default": wording.default_locale,
        "texts": wording.texts,
        "arguments": {name: {"kind": kind, "sample": wording.samples[name]} for name, kind in wording.kinds.items()},
        "zoned": wording.zoned,
        "bytes": max(text.bytes for text in rendered.values()),
    }
    written = Jsonb(given, dumps=lambda value: json.dumps(value, default=_number))
    with refusals():
        row = connection.execute(_SQL["save_wording"], {"given": written}).fetchone()
    assert row is not None
    return Saved(row[0], before is None or before["version"] != row[0])


def show(database: Database, event_type: str, version: int | None = None) -> Row:
    """Return a version of a type's texts, or the current one; raises NotFoundError."""
    found = fetch(database, _SQL["read_wording"], event_type=event_type, version=version)
    if not found:
        what = f"Version {version} of the texts of" if version else "The texts of"
        raise NotFoundError(
            f"{what} {checks.quoted(event_type)} are not there.", hint="`relevo words show` lists the types with texts."
        )
    return found[0]


def list_words(database: Database, after: str = "", limit: int = 100) -> tuple[list[Row], bool]:
    """List types that have texts, each with its current version, and whether there may be more."""
    rows = fetch(database, _SQL["list_wordings"], after=after, limit=limit)
    listed = [row.pop("listed") for row in rows]
    return rows, bool(rows) and (listed[0] == limit or listed[0] > len(rows))


def list_types(database: Database) -> list[str]:
    """List the types that have texts, by name, without the texts."""
    return [row["event_type"] for row in fetch(database, _SQL["list_worded_types"])]


def project_locales(database: Database) -> list[Row]:
    """List the projects that a locale was set for, for phones whose own language has no text."""
    return fetch(database, _SQL["list_project_locales"])


def set_project_locale(database: Database, project: str, locale: str | None) -> None:
    """Set the locale of a project's phones whose own language has no text, or none; raises InvalidInputError."""
    _check_project_locale(project, locale)
    with audit.recorded(database, "set_project_locale", project=project, locale=locale), database.transaction() as conn:
        write_project_locale(conn, project, locale)


def write_project_locale(connection: Connection, project: str, locale: str | None) -> None:
    """Set the locale of a project, or none, in the caller's transaction; raises InvalidInputError."""
    _check_project_locale(project, locale)
    connection.execute(
        _SQL["set_project_locale" if locale else "forget_project_locale"], {"project": project, "locale": locale}
    )


def _check_project_locale(project: str, locale: str | None) -> None:
    if not 1 <= len(project) <= _MOST_PROJECT:
        _refuse(f"project must have 1 to {_MOST_PROJECT} characters")
    if locale is not None and not LOCALE.fullmatch(locale):
        _refuse(f"{checks.quoted(locale)} is no locale; they are like es, es-419, zh-Hant or pt-BR")
    checks.check_storable("project", project)


def _read(connection: Connection, event_type: str, version: int | None) -> Row | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL["read_wording"], {"event_type": event_type, "version": version}).fetchone()


def _refuse(complaint: str | None) -> None:
    if complaint is not None:
        raise InvalidInputError(f"{complaint[:500]}.", hint=_HINT)


def _shape_complaints(given: Mapping[str, Any]) -> Iterator[str]:
    checks.check_storable("the texts", dict(given))
    if unknown := set(given) - _GIVEN:
        yield f"texts have no field {', '.join(sorted(unknown))[:100]}; they have {', '.join(sorted(_GIVEN))}"
    if not isinstance(given.get("type"), str) or not given["type"].strip():
        yield "type must be given"
    yield from checks.texts(given, {"type": (1, 100), "default": (1, 35)})
    if given["type"].startswith("relevo.") and given["type"] != DIGEST:
        yield "type must not begin with relevo., which is for Relevo itself"
    named, texts = given.get("arguments") or {}, given.get("texts")
    if not isinstance(named, Mapping) or len(named) > MOST_ARGUMENTS:
        yield f"arguments must be at most {MOST_ARGUMENTS} names, each with a sample"
    elif given["type"] == DIGEST and (strange := sorted(set(named) - set(digest_texts.ARGUMENTS))):
        yield f"a digest has no argument {', '.join(strange)[:100]}; it has {', '.join(digest_texts.ARGUMENTS)}"
    if not isinstance(texts, Mapping) or not 1 <= len(texts) <= MOST_LOCALES:
        yield f"texts must hold 1 to {MOST_LOCALES} locales, each with its title and body"
    else:
        yield from _text_complaints(texts)


def _text_complaints(texts: Mapping[str, Any]) -> Iterator[str]:
    if len({locale.lower() for locale in texts}) < len(texts):
        yield "texts must name every locale once"
    for locale, text in texts.items():
        if not LOCALE.fullmatch(locale):
            yield f"texts: {checks.quoted(locale)} is no locale; they are like es, es-419, zh-Hant or pt-BR"
        if isinstance(text, str):
            if not isinstance(texts.get(text), Mapping):
                yield f"texts.{locale} is to be as {checks.quoted(text)} is, which has no text of its own"
        elif not isinstance(text, Mapping) or not text.get("title") or set(text) - set(FIELDS):
            yield f"texts.{locale} must have a title, and may have a body and a subtitle"
        else:
            yield from checks.texts(text, dict.fromkeys(FIELDS, (0, MOST_PATTERN)), f"texts.{locale}.")


def _kinds(wording: Wording) -> dict[str, Kind]:
    """Return of which kind each argument has to be; raises if one is not known, or is named in two ways."""
    samples = wording.samples
    needed: dict[str, set[Kind]] = {name: set() for name in samples}
    unnamed = set(samples)
    for locale, text in wording.texts.items():
        for part, said in text.items():
            for named in _named(wording, f"{locale} {part}", said):
                if named.name not in samples:
                    _refuse(f"{locale} {part} names {{{named.name}}}, which is not among the arguments")
                unnamed.discard(named.name)
                needed[named.name] |= {named.kind} if named.kind else set()
    if unnamed:
        _refuse(f"argument {min(unnamed)} is named by no text: take it out")
    return {name: _kind(name, needed[name], samples[name]) for name in samples}


def _named(wording: Wording, what: str, said: str) -> list[Argument | Choice]:
    try:
        return list(patterns.arguments(wording.message(said)))
    except PatternError as error:
        raise InvalidInputError(f"{what}: {error}.", hint=_HINT) from None


def _check_styles(wording: Wording) -> None:
    for locale, text in wording.texts.items():
        for part in text:
            try:
                wording.check_styles(locale, part)
            except PatternError as error:
                _refuse(f"{locale} {part}: {error}")


def _kind(name: str, needed: set[Kind], sample: object) -> Kind:
    own: Kind = "text" if isinstance(sample, str) else "number"
    if len(needed) > 1:
        _refuse(f"argument {name} is named as a {' and as a '.join(sorted(needed))}")
    kind = next(iter(needed), own)
    fits = kind == own or (kind == "time" and isinstance(sample, str))
    if isinstance(sample, bool) or not isinstance(sample, str | int | float | Decimal) or not fits:
        _refuse(f"the sample of argument {name} must be a {kind}, got {checks.quoted(sample)}")
    return kind


def _number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else str(value)
