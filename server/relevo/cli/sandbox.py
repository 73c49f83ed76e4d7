"""The command that serves a local Expo, and the native push services beside it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.markup import escape

from relevo import sandbox
from relevo.cli.common import out, printable
from relevo.core.errors import UsageError
from relevo.core.known_services import LABELS, NATIVE, NATIVE_IN_WORDS, listed

cli = typer.Typer()
_DEFAULTS = sandbox.Settings()


@cli.command(
    name="sandbox",
    help=f"Serve a local {listed(LABELS.values(), ' and ')} with faults on demand, until SIGINT or SIGTERM.",
    epilog="Example: relevo sandbox --port 8787 --fault 500:0.01",
)
def serve_sandbox(  # noqa: PLR0917 typer options
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0: any free one.")] = 8787,
    host: Annotated[str, typer.Option(help="The address. The default is for this machine only.")] = "127.0.0.1",
    rate: Annotated[
        float, typer.Option(min=0, help="Notifications a second per project; 0 lifts the limit.")
    ] = _DEFAULTS.rate_per_s,
    access_token: Annotated[
        str | None, typer.Option(help="Require this bearer token, as Expo's enhanced security does.")
    ] = None,
    latency_ms: Annotated[float, typer.Option(min=0, help="The delay of each answer.")] = _DEFAULTS.latency_ms,
    receipt_delay_s: Annotated[
        float, typer.Option(min=0, help="Sandbox seconds from a push to its receipt.")
    ] = _DEFAULTS.receipt_delay_s,
    time_scale: Annotated[
        float, typer.Option(help="Sandbox seconds per real second: 60 lets receipts age 24 h in 24 min.")
    ] = _DEFAULTS.time_scale,
    keep_messages: Annotated[
        int, typer.Option(min=0, help="Messages kept for each phone; 0: only the counters.")
    ] = _DEFAULTS.keep_messages,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault and its share of requests (repeatable), such as 500:0.01, or apns:goaway:0.01 for another "
            "service."
        ),
    ] = None,
    native_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=sandbox.MAX_NATIVE_PORT,
            help=f"The first port of {NATIVE_IN_WORDS}; 0: free ports, if possible the last run's.",
        ),
    ] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(help="The folder for their keys and certificates. Default: a temporary one."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log no requests.")] = False,
) -> None:
    """Serve the push services of this machine."""
    native = sandbox.has_native()
    sandbox.serve(
        native=native,
        native_port=native_port,
        folder=folder,
        host=host,
        port=port,
        started=partial(_greet, folder),
        tell=None if quiet else _tell,
        rules=[_rule(text) for text in fault or ()],
        rate_per_s=rate,
        access_token=access_token,
        latency_ms=latency_ms,
        receipt_delay_s=receipt_delay_s,
        time_scale=time_scale,
        keep_messages=keep_messages,
    )


def _greet(folder: Path | None, started: sandbox.Sandbox) -> None:
    url = started.url
    out.print(f"The sandbox listens. Use it with [bold]EXPO_BASE_URL={escape(url)}[/]", soft_wrap=True)
    out.print(f"See it at {escape(url)}/", soft_wrap=True)
    for name, value in started.settings().items():
        out.print(f"{name}={escape(value)}", soft_wrap=True)
    if folder is not None and started.settings():
        file = _write_settings(folder, {"EXPO_BASE_URL": url, **started.settings()})
        out.print(f"For a shell: set -a; . {escape(quote(str(file)))}; set +a", soft_wrap=True)
    if not started.settings():
        out.print(f"{NATIVE_IN_WORDS} are not served: pip install 'relevo[{','.join(NATIVE)}]'.", markup=False)
    sys.stdout.flush()


def _write_settings(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write the settings of Relevo where a shell in any folder can read them, and return the file."""
    file = folder / "settings.env"
    paths = {name: str(Path(value).absolute()) for name, value in settings.items() if name.endswith("_FILE")}
    file.write_text("".join(f"{name}={quote(value)}\n" for name, value in {**settings, **paths}.items()))
    return file


def _tell(line: str) -> None:
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def _rule(text: str) -> dict[str, Any]:
    """Read `500:0.01`, or `apns:goaway:0.01`; without a share the fault hits everything."""
    service, _, rest = text.partition(":")
    named = {"service": service} if service in NATIVE else {}
    word, colon, share = (rest if named else text).rpartition(":")
    try:
        return named | ({"fault": word, "share": float(share)} if colon else {"fault": share})
    except ValueError:
        raise UsageError(f"--fault {text} has no share.", hint="Write it like --fault 500:0.01.") from None
