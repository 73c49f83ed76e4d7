"""The command `relevo`, also as `python -m relevo`."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line.

    Loading it takes a moment: a signal that tells `relevo run` to stop in that moment is held back until it is caught.
    """
    if sys.argv[1:2] == ["run"] and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    from relevo import cli  # noqa: PLC0415

    cli.main()


if __name__ == "__main__":
    main()
