"""The command that serves a local Expo."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from relevo import sandbox
from relevo.cli.common import out
from relevo.core.errors import UsageError

cli = typer.Typer()
_DEFAULTS = sandbox.Settings()


@cli.command(name="sandbox")
def serve_sandbox(  # noqa: PLR0917 typer options
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes any port that is free.")
    ] = 8787,
    host: Annotated[str, typer.Option(help="Where to listen; the default is for this machine only.")] = "127.0.0.1",
    rate: Annotated[
        float, typer.Option(min=0, help="Notifications a second per project; 0 lifts the limit.")
    ] = _DEFAULTS.rate_per_s,
    access_token: Annotated[
        str | None, typer.Option(help="Enhanced security: requests must bring this bearer token.")
    ] = None,
    latency_ms: Annotated[float, typer.Option(min=0, help="How long every answer takes.")] = _DEFAULTS.latency_ms,
    receipt_delay_s: Annotated[
        float, typer.Option(min=0, help="After how many sandbox seconds a receipt appears.")
    ] = _DEFAULTS.receipt_delay_s,
    time_scale: Annotated[
        float, typer.Option(help="Sandbox seconds per real second: 60 lets receipts age 24 h in 24 min.")
    ] = _DEFAULTS.time_scale,
    keep_messages: Annotated[
        int, typer.Option(min=0, help="How many messages each phone shows; 0 leaves only the counters.")
    ] = _DEFAULTS.keep_messages,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="A fault and the share it befalls, as in 500:0.01; may be given again."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing about requests.")] = False,
) -> None:
    """Serve a local Expo push service with faults on demand, until SIGINT or SIGTERM."""
    sandbox.serve(
        host=host,
        port=port,
        started=_greet,
        tell=None if quiet else _tell,
        rules=[_rule(text) for text in fault or ()],
        rate_per_s=rate,
        access_token=access_token,
        latency_ms=latency_ms,
        receipt_delay_s=receipt_delay_s,
        time_scale=time_scale,
        keep_messages=keep_messages,
    )


def _greet(url: str) -> None:
    out.print(f"The sandbox listens. Use it with [bold]EXPO_BASE_URL={escape(url)}[/]", soft_wrap=True)
    out.print(f"See it at {escape(url)}/", soft_wrap=True)
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stdout.write("".join(each if each.isprintable() else " " for each in line) + "\n")
    sys.stdout.flush()


def _rule(text: str) -> dict[str, Any]:
    """Read `500:0.01`; without a share the fault befalls everything."""
    word, colon, share = text.rpartition(":")
    try:
        return {"fault": word, "share": float(share)} if colon else {"fault": text}
    except ValueError:
        raise UsageError(f"--fault {text} has no share.", hint="Write it like --fault 500:0.01.") from None
