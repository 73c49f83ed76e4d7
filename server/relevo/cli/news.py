"""Commands about news: who hears what came of events, deliveries and phones."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from relevo.cli.common import (
    AsJson,
    by_status,
    load_settings,
    prepared_database,
    print_rows,
    print_wrapped,
    say,
    shortened,
)
from relevo.client import news
from relevo.config import Settings
from relevo.core.errors import UsageError
from relevo.operators import fleet
from relevo.operators.formats import in_numbers
from relevo.verbs import news as verbs
from relevo.verbs.callers import operator

cli = typer.Typer()
_group = typer.Typer(
    no_args_is_help=True,
    help="News back to the app: outcomes as a feed to read, or as signed webhooks.",
    epilog="Example: relevo news subscribe billing --kind delivery.failed --webhook billing",
)
cli.add_typer(_group, name="news")

Name = Annotated[str, typer.Argument(help="The subscription's name.")]


@_group.command(epilog="Example: relevo news subscribe billing --kind delivery.failed --webhook billing")
def subscribe(
    name: Name,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            help=f"The kinds of news (repeatable): {', '.join(news.KINDS)}. Default of a new one: all but the last.",
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Only news of this project's phones; '' removes the restriction.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(help="Send the news to this entry of WEBHOOKS_FILE; '': your app reads them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Subscribe to news from now on, or change a subscription (omitted options stay)."""
    asked: dict[str, Any] = {"kinds": tuple(kinds)} if kinds else {}
    asked |= {each: text or None for each, text in (("project", project), ("webhook", webhook)) if text is not None}
    settings = load_settings()
    with prepared_database(settings) as database:
        created = verbs.subscribe(operator(database), name, asked)
        webhook = next(row["webhook"] for row in fleet.subscriptions(database) if row["name"] == name)
    trouble = _trouble(settings, webhook)
    where = f"are sent to the webhook {webhook}" if webhook else f"can be read: relevo news read {name}"
    words = f"{'Subscribed' if created else 'Changed'}: news for {escape(name)} {escape(where)}."
    say(words, {"name": name, "created": created} | ({"warning": trouble} if trouble else {}), as_json=as_json)
    if trouble and not as_json:
        print_wrapped("Warning:", f"{trouble}; news that a worker cannot send there fail for good.", "bold yellow")


def _trouble(settings: Settings, webhook: str | None) -> str:
    """Return why nothing could be sent to a webhook by the settings here; workers may have others."""
    if webhook is None:
        return ""
    from relevo.app.push_services import webhook_trouble  # noqa: PLC0415 it loads much, and few subscribe

    return webhook_trouble(settings, webhook)


@_group.command("list", epilog="Example: relevo news list --json")
def list_(as_json: AsJson = False) -> None:
    """List the subscriptions, with the number of waiting and of dropped news."""
    with prepared_database(load_settings(only_looks=True)) as database:
        found = fleet.subscriptions(database)
    columns = {
        "name": lambda row: escape(row["name"]),
        "state": lambda row: "paused" if row["paused_at"] else "on",
        "waiting": lambda row: f"{row['waiting']:,}",
        "dropped": lambda row: f"{row['dropped']:,}",
        "goes to": lambda row: escape(f"webhook {row['webhook']}" if row["webhook"] else "whoever reads"),
        "project": lambda row: escape(row["project"] or "all"),
        "kinds": lambda row: ", ".join(row["kinds"]),
    }
    none = "Nobody subscribed to news: `relevo news subscribe --help`."
    print_rows(columns, found, none, wide=("kinds",), as_json=as_json)


@_group.command(epilog="Example: relevo news read billing --acknowledge")
def read(
    name: Name,
    after: Annotated[
        int | None, typer.Option(min=0, help="Read after this position. Default: after the last acknowledged one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=news.MOST_AT_ONCE, help="How many to show.")] = 20,
    acknowledge: Annotated[bool, typer.Option("--acknowledge", help="Acknowledge the shown news.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read a subscription's next news, oldest first."""
    with prepared_database() as database:
        found = verbs.read(operator(database), name, after, limit)
        if acknowledge and found:
            verbs.acknowledge(operator(database), name, found[-1].position)
    columns = {
        "position": lambda each: str(each.position),
        "at": lambda each: f"{each.at:%Y-%m-%d %H:%M:%S}",
        "kind": lambda each: each.kind,
        "event": lambda each: str(each.event_id or ""),
        "delivery": lambda each: str(each.delivery_id or ""),
        "installation": lambda each: str(each.installation_id or ""),
        "said": lambda each: escape(_said(each)),
    }
    print_rows(columns, found, f"No news for {escape(name)}.", wide=("said",), as_json=as_json)


def _said(each: news.Outcome) -> str:
    deliveries = each.data.get("deliveries")
    words = [str(each.data[key]) for key in ("event_type", "state", "error_code", "reason") if each.data.get(key)]
    return shortened(" ".join([*words, by_status(deliveries) if deliveries else ""]).strip())


@_group.command(epilog="Example: relevo news pause billing")
def pause(name: Name, as_json: AsJson = False) -> None:
    """Pause a subscription until `relevo news resume`. Relevo keeps the news meanwhile, up to NEWS_BACKLOG_LIMIT."""
    with prepared_database() as database:
        verbs.pause(operator(database), name)
    say(f"Paused: news for {escape(name)} wait.", {"name": name, "paused": True}, as_json=as_json)


@_group.command(epilog="Example: relevo news resume billing")
def resume(name: Name, as_json: AsJson = False) -> None:
    """Resume a paused subscription where it stopped."""
    with prepared_database() as database:
        verbs.pause(operator(database), name, paused=False)
    say(f"Resumed: news for {escape(name)} go on.", {"name": name, "paused": False}, as_json=as_json)


@_group.command(epilog="Example: relevo news remove billing")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it even if news wait unread.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a subscription with its waiting news."""
    with prepared_database() as database:
        waiting = sum(row["waiting"] for row in fleet.subscriptions(database) if row["name"] == name)
        if waiting and not yes:
            raise UsageError(
                f"{in_numbers(waiting, 'news waits', 'news wait')} unread for {name}.",
                hint="Read them first, or drop them with --yes.",
            )
        verbs.remove(operator(database), name)
    told = {"name": name, "removed": True, "forgotten": waiting}
    say(f"Removed: {escape(name)} gets no more news.", told, as_json=as_json)
