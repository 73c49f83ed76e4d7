"""Writes the functions that changed since the last migration into the next one: `make migration NAME=what_it_does`.

Two databases are compared: one of the last release with the migrations since, and one made of `sql/tables` and
`sql/functions`. Changed tables are named, and their statements written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import released
from released import Thing
from relevo.core import queries
from relevo.database import migrate
from relevo.database.migrate import Migration

LINE = "-- Written by `make migration` from sql/functions; what stands above this line is yours."
HEADER = "-- needs relevo {needs}\n-- Say here in a sentence what this migration is for.\n\n"
FOLDER = queries.sql_root() / "migrations"
FEW = 8
"""So many changes are named."""
OPEN = """-- Who could call the app's functions may call the new ones.
select relevo.grant_app(r.rolname)
  from pg_proc p
  cross join aclexplode(p.proacl) a
  join pg_roles r on r.oid = a.grantee
 where p.oid = 'relevo.enqueue(jsonb)'::regprocedure and a.grantee <> p.proowner;
"""
_FUNCTION = re.compile(r"^create or replace function relevo\.(\w+)", re.MULTILINE)


def write(differing: Sequence[Thing], fresh: dict[Thing, str], name: str, folder: Path = FOLDER) -> Path:
    """Write what differs into the migration of this name, the newest one or a new one after it."""
    target = place(name, folder)
    above = target.read_text(encoding="utf-8").partition(LINE)[0] if target.exists() else heading(differing)
    target.write_text(f"{above}{LINE}\n\n{functions(differing, fresh)}", encoding="utf-8")
    return target


def place(name: str, folder: Path) -> Path:
    """Return the file of the migration: the newest, while it has this name, or the next number's."""
    newest = sorted(folder.glob("*.sql"))[-1:]
    last = int(newest[0].name[:4]) if newest else migrate.OLDEST.version
    if newest and newest[0].name == f"{last:04}_{name}.sql":
        return newest[0]
    return folder / f"{last + 1:04}_{name}.sql"


def heading(differing: Sequence[Thing]) -> str:
    """Return the beginning of a new migration, with what is to be written by hand."""
    by_hand = [f"-- Write what makes this so: {thing}\n" for thing in differing if thing.kind != "function"]
    return HEADER.format(needs=released.versions()[-1]) + "".join(by_hand) + ("\n" if by_hand else "")


def functions(differing: Sequence[Thing], fresh: dict[Thing, str]) -> str:
    """Return the changed functions, each after those it needs; drop those that went, and grant the new ones."""
    changed = {_bare(thing) for thing in differing if thing.kind == "function" and thing in fresh}
    texts = [part for part in migrate.parts() if (named := _FUNCTION.search(part)) and named[1] in changed]
    gone = [f"drop function {thing.name};" for thing in differing if thing.kind == "function" and thing not in fresh]
    return "\n\n".join(["set local check_function_bodies = off;", *texts, *gone, OPEN])


def _bare(thing: Thing) -> str:
    return thing.name.removeprefix("relevo.").partition("(")[0]


def by_hand(migration: Migration) -> Migration:
    """Return a migration without what was written by this program."""
    return replace(migration, body=migration.body.partition(LINE.encode())[0])


def compare(upgraded: str, made: str, name: str) -> tuple[list[Thing], dict[Thing, str]]:
    """Return what the migrations do not make, of this one what was written by hand, and all that is there now."""
    released.make(upgraded, released.versions()[-1])
    released.bring_up_to_date(upgraded, [by_hand(each) if each.name == name else each for each in migrate.available()])
    released.make_of(made, migrate.baseline())
    fresh = released.catalog(made)
    return released.differences(released.catalog(upgraded), fresh), fresh


def main(arguments: Sequence[str]) -> None:
    """Write the migration, or say that there is nothing to write."""
    if len(arguments) != 1 or not re.fullmatch(r"[a-z0-9_]+", arguments[0]):
        raise SystemExit("Say what it does in small letters: make migration NAME=wider_titles")
    [name] = arguments
    with released.empty_databases("upgraded", "made") as [upgraded, made]:
        differing, fresh = compare(upgraded, made, name)
    if not differing:
        print("Nothing differs: sql/tables and sql/functions are what the migrations make.")
        return
    target = write(differing, fresh, name)
    named = ", ".join(map(str, differing[:FEW])) + (f" and {len(differing) - FEW} more" if differing[FEW:] else "")
    print(f"Wrote {target.relative_to(released.ROOT)}: {named}.")


if __name__ == "__main__":
    main(sys.argv[1:])
