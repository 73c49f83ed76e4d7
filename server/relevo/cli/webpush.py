"""Commands for Web Push."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relevo import push_services
from relevo.cli.common import AsJson, say

cli = typer.Typer()
webpush = typer.Typer(help="Keys for Web Push.", no_args_is_help=True)
cli.add_typer(webpush, name="webpush")


@webpush.command()
def keys(
    file: Annotated[Path, typer.Argument(help="Where the private key is, or will be.")],
    as_json: AsJson = False,
) -> None:
    """Make a pair of VAPID keys: the private one into a new file of mode 600, the public one is printed.

    Of a file that is there already the public key is printed: browsers that subscribed with it know no other.
    """
    public, is_new = push_services.vapid_key(file)
    words = "A new private key is in" if is_new else "The private key was there already, in"
    say(
        f"{words} {file}. The public key, for applicationServerKey in your page:\n{public}",
        {"file": str(file), "public_key": public, "is_new": is_new},
        as_json=as_json,
    )
