"""Commands that another command made needless are not listed any more; they work as they did, with a warning, until 0.6."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_group

from relevo import cli
from support.relevo_command import Command

REPLACED = {
    "cap list",
    "cap set",
    "category list",
    "category set",
    "forget",
    "version",
    "words check",
    "words language",
}
BEFORE = 68
"""How many commands were listed before `relevo apply`."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands by their words."""
    group = get_group(cli.cli)
    for name in group.list_commands(typer.Context(group)):
        found = group.get_command(typer.Context(group), name)
        below = getattr(found, "commands", None)
        yield from ((f"{name} {word}", each) for word, each in below.items()) if below else [(name, found)]


def test_they_are_not_listed() -> None:
    """What is hidden is what another command replaces, and all else is listed, which is less than before `relevo apply`."""
    assert {name for name, each in commands() if each.hidden} == REPLACED
    assert sum(not each.hidden for _, each in commands()) < BEFORE


def test_no_group_without_commands_is_listed() -> None:
    """A group whose commands are all hidden is hidden, too: its name leads nowhere."""
    group = get_group(cli.cli)
    for name in group.list_commands(typer.Context(group)):
        found = group.get_command(typer.Context(group), name)
        if below := getattr(found, "commands", None):
            assert found.hidden == all(each.hidden for each in below.values()), name


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


def test_the_others_name_what_does_the_same(conn: Any, command: Command) -> None:
    """What only lists, checks, shows or deletes names on stderr the command or option to use, and does it."""
    for words, instead in (
        (("version",), "relevo --version"),
        (("cap", "list", "--json"), "relevo apply --export"),
        (("category", "list", "--json"), "relevo owner show"),
        (("forget", "--owner", "ana", "--json"), "relevo owner forget OWNER"),
        (("words", "language", "es", "--json"), "projects.NAME.language"),
    ):
        done = command(*words)
        assert done.code == 0
        assert instead in " ".join(done.err.split())
        assert "0.6" not in done.out
    assert conn.execute("select locale from relevo.project_locales").fetchall() == [("es",)]
