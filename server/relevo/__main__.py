"""The command `relevo`, also as `python -m relevo`."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Any

from relevo.core.errors import MissingPartError
from relevo.core.version import __version__

_USAGE = 2


def main() -> None:
    """Run the command line.

    Loading it takes a moment: a signal that tells `relevo run` to stop in that moment is held back until it is caught.
    """
    if sys.argv[1:] == ["--version"]:
        print(__version__)  # noqa: T201 the rest of the command line need not be there
        return
    if sys.argv[1:2] == ["run"] and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    try:
        _load().main()
    except ModuleNotFoundError as missing:
        sys.exit(_complain(missing))


def _load() -> Any:
    """Load the command line; what is loaded stays, so looking for garbage meanwhile would be a tenth of the time."""
    gc.disable()
    try:
        from relevo import cli  # noqa: PLC0415
    finally:
        gc.freeze()
        gc.enable()
    return cli


def _complain(missing: ModuleNotFoundError) -> int:
    """Name the part of Relevo that is missing; a missing module of Relevo's own is a fault of ours."""
    if missing.name is not None and missing.name.partition(".")[0] == "relevo":
        raise missing
    known = isinstance(missing, MissingPartError)
    said = (
        missing
        if known
        else f"{missing.name} is not installed. Install the server, too: pip install './relevo[server]'"
    )
    print(f"relevo: {said}", file=sys.stderr)  # noqa: T201 the server's own way to complain may be what is missing
    return _USAGE


if __name__ == "__main__":
    main()
