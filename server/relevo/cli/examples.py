"""What --help shows: a line to copy behind each command that brings none of its own, and no type behind flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

EXAMPLES = {
    "run": "relevo run --cycles reaper,fanout,dispatch,receipt",
    "tick": "relevo tick --runners fanout,dispatch",
    "run-cycle": "relevo run-cycle ingest:folder",
    "pause": "relevo pause dispatch --reason 'Expo is down, see ticket 17'",
    "resume": "relevo resume dispatch",
    "event-type": "relevo event-type order.shipped --urgent --ttl-s 3600",
    "events": "relevo events --state held --json",
    "installations": "relevo installations --owner user-7",
    "inbox": "relevo inbox user-7 --status unread",
    "rejects": "relevo rejects --source folder --retry",
    "grant": "relevo grant app_role",
    "redrive": "relevo redrive --error-code MessageRateExceeded --dry-run",
    "release": "relevo release @acme/app",
    "audit": "relevo audit --json",
    "forget": "relevo forget 0d9e5b0a-6c1f-4b8e-9d53-1f2a3b4c5d6e",
    "migrate": "relevo migrate --plan",
    "config": "relevo config --json",
    "psql": "relevo psql -c 'select * from worker_runs'",
    "version": "relevo version",
    "sandbox": "relevo sandbox --port 8787 --fault 500:0.01",
    "webpush keys": "relevo webpush keys vapid.pem",
    "owner show": "relevo owner show user-7",
    "owner export": "relevo owner export user-7 --into user-7.json",
    "owner block": "relevo owner block user-7 --reason 'asked by mail, 17 November'",
    "owner unblock": "relevo owner unblock user-7",
    "owner forget": "relevo owner forget user-7",
    "category list": "relevo category list --locale es-CL",
    "category set": "relevo category set offers --rule off --name en=Offers --name es=Ofertas",
    "quiet set": "relevo quiet set 22:00-07:00 'sat,sun 07:00-10:00' --owner user-7 --zone America/Santiago",
    "quiet show": "relevo quiet show --owner user-7",
    "cap list": "relevo cap list --json",
    "cap set": "relevo cap set day 5 --category offers",
    "words set": "relevo words set texts/*.toml",
    "words check": "relevo words check texts/*.toml",
    "words preview": "relevo words preview texts/order-shipped.toml --argument count=3 --timezone America/Santiago",
    "words show": "relevo words show order.shipped --version 2",
    "words language": "relevo words language es --project default",
    "token list": "relevo token list --json",
    "token revoke": "relevo token revoke c4f4d51df489",
    "news subscribe": "relevo news subscribe billing --kind delivery.failed --webhook billing",
    "news list": "relevo news list --json",
    "news read": "relevo news read billing --acknowledge",
    "news pause": "relevo news pause billing",
    "news resume": "relevo news resume billing",
    "news remove": "relevo news remove billing",
    "archive list": "relevo archive list --json",
    "archive verify": "relevo archive verify --entity deliveries --month 2026-05",
    "archive restore": "relevo archive restore --entity deliveries --month 2026-05",
    "archive fetch": "relevo archive fetch --entity deliveries --month 2026-05 --into /tmp/past",
    "archive query": 'relevo archive query "select status, count(*) from deliveries group by 1"',
    "archive register": "relevo archive register",
}


def show(command: Any, name: str) -> None:
    """Give a command, or those of a group, their example."""
    for below, each in getattr(command, "commands", {}).items():
        show(each, f"{name} {below}")
    hide_types_of_flags(command.get_params(typer.Context(command)))
    if not command.epilog and name in EXAMPLES:
        command.epilog = f"Example: {EXAMPLES[name]}"


def hide_types_of_flags(parameters: Sequence[Any]) -> None:
    """Show no type behind a flag, which takes nothing."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
