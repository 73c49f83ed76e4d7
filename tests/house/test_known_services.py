"""A push service is named in one table; where else it stands is a short list, which the map of the code holds, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import provider_sql
from relevo.core.known_services import NATIVE, SERVICES
from support.mixed_phones import SERVICE_OF

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "server" / "README.md").read_text(encoding="utf-8")
PLACES = (
    "server/relevo/providers/",
    "server/relevo/operators/phone_files.py",
    "server/clients/expo/src/session.ts",
    "server/clients/web/src/push.ts",
    "server/clients/web/worker/relevo-worker.ts",
    "sql/functions/checks/check_service.sql",
    "sql/functions/checks/is_plain_installation.sql",
    "sql/functions/checks/refuse_unshown.sql",
    "sql/functions/checks/token_complaint.sql",
    "sql/functions/consent/rules_for_phone.sql",
    "sql/functions/phones/",
)
"""Where a push service may be named: what a new one, or one that differs, has to edit."""
OTHERWISE = {
    "server/relevo/cli/": {
        "webpush",
        "apns",
    },  # the command `relevo webpush`, which the map names; an example of a fault
    "server/relevo/app/push_services.py": {"webpush"},  # what that command calls
    "server/relevo/client/push_rules.py": {"apns"},  # a field of a push, for iPhones
    "server/relevo/core/push_overrides.py": {"apns"},
    "sql/functions/checks/push_fields.sql": {"apns"},
    "server/relevo/http/dashboard/guide.py": {"huawei"},  # the former address of a page
    "server/relevo/sandbox/faults/expo.py": {"fcm", "apns"},  # errors of theirs that Expo passes on
    "server/relevo/sandbox/server.py": set(NATIVE),  # shorthands of Sandbox
    "server/relevo/sandbox/templates/overview.html": {"webpush"},  # an example
    "scripts/bench/native.py": {"fcm"},  # by which it is measured how sending scales
    "scripts/chaos/service_faults.py": {"webpush"},  # whose phones it calls gone
    "sql/first_rows.sql": set(NATIVE),  # a new one becomes a row when a worker serves it
    "sql/functions/client/list_installations_in_project.sql": {"apns"},  # a field of the answer
}
"""Where some are named as something else."""
SUFFIXES = (".py", ".sql", ".html", ".js", ".ts", ".tsx")
NAME = re.compile(rf"(?<![\w.@/-])({'|'.join(NATIVE)})(?![\w/\\-]|\.\w)")


def named(path: Path) -> set[str]:
    """Return the push services that a file names: in Python in its strings, docstrings apart, elsewhere in quotes.

    What `make docs` writes does not count.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        text = provider_sql.PLACE.sub("", text)
    if path.suffix != ".py":
        return set(re.findall(rf"['\"`]({'|'.join(NATIVE)})(?:::)?['\"`]", text))
    tree = ast.parse(text)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told)
    return {name for node in strings if isinstance(node.value, str) for name in NAME.findall(node.value)}


def files() -> Iterator[str]:
    """Yield the files of the package, of the kits' sources, of the SQL as it is now, of chaos and of the bench."""
    kits = (
        f"server/clients/{kit}/{folder}"
        for kit in ("client", "expo", "pg", "react", "web")
        for folder in ("src", "worker")
    )
    folders = ("server/relevo", "sql/functions", "sql/queries", "sql/tables", "scripts/chaos", "scripts/bench", *kits)
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    written = (path for path in found if path.suffix in SUFFIXES and "generated" not in path.parts)
    yield from (str(path.relative_to(ROOT)) for path in written)
    yield "sql/first_rows.sql"


def test_a_push_service_is_named_in_few_places() -> None:
    """What differs by push service is derived from the table, but for the places that "Adding a provider" lists."""
    found = {file: named(ROOT / file) for file in files() if not file.startswith(PLACES)}
    for place, names in OTHERWISE.items():
        found |= {file: some - names for file, some in found.items() if file.startswith(place)}
    assert {file: names for file, names in found.items() if names} == {}


def test_each_of_these_places_is_needed() -> None:
    """A place that names no push service any more leaves the list."""
    naming = [file for file in files() if named(ROOT / file)]
    assert [place for place in (*PLACES, *OTHERWISE) if not any(file.startswith(place) for file in naming)] == []


def test_the_map_lists_all_of_them() -> None:
    """Who adds a provider is led to every file that names the others."""
    start = MAP.index("### Adding a provider")
    section = MAP[start : MAP.index("### ", start + 1)]
    links = {
        str((ROOT / "server" / link).resolve().relative_to(ROOT)) for link in re.findall(r"\]\(([^)#:]+)\)", section)
    }
    folders = tuple(place for place in PLACES if place.endswith("/") and "/providers/" not in place)
    needed = [place for place in PLACES if not place.endswith("/")]
    needed += [file for file in files() if file.startswith(folders) and named(ROOT / file) and not _is_own(file)]
    assert [file for file in needed if file not in links] == []


def test_tests_of_all_services_try_all() -> None:
    """Tests that try a phone of each push service have one of each: a new service is tried by them, or they fail."""
    assert sorted(SERVICE_OF.values()) == sorted(SERVICES)


def _is_own(file: str) -> bool:
    """Return whether a file is one service's own, as its name says."""
    return Path(file).name.startswith(tuple(NATIVE))
