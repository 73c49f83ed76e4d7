"""Commands that `relevo apply` made needless are not listed any more; they work as they did, with a warning, until 0.6."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_group

from relevo import cli
from support.relevo_command import Command

REPLACED = {"category set", "cap set"}


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands by their words."""
    group = get_group(cli.cli)
    for name in group.list_commands(typer.Context(group)):
        found = group.get_command(typer.Context(group), name)
        below = getattr(found, "commands", None)
        yield from ((f"{name} {word}", each) for word, each in below.items()) if below else [(name, found)]


def test_they_are_not_listed() -> None:
    """What is hidden is what apply replaces, and all else is listed."""
    assert {name for name, each in commands() if each.hidden} == REPLACED


def test_what_is_replaced_works_and_says_so(conn: Any, command: Command) -> None:
    """Each does what it did, and says on stderr which part of the file sets the same, so that output for programs stays whole."""
    for words, part in (
        (("category", "set", "offers", "--rule", "off", "--name", "en=Offers"), "categories"),
        (("cap", "set", "day", "5", "--json"), "projects.NAME.caps"),
    ):
        done = command(*words)
        assert done.code == 0
        assert f"leaves in 0.6: set `{part}` in a file for `relevo apply`" in " ".join(done.err.split())
        assert "0.6" not in done.out
    assert conn.execute("select rule from relevo.categories where category = 'offers'").fetchall() == [("off",)]
    assert conn.execute("select most from relevo.caps").fetchall() == [(5,)]
