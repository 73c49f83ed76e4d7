"""The command `relevo` on a machine of its own, `web-2`, whose clock is CLOCK_AHEAD_S seconds ahead."""

from __future__ import annotations

import os
import socket
import time

_AHEAD_S = float(os.environ.pop("CLOCK_AHEAD_S"))
_time = time.time
time.time = lambda: _time() + _AHEAD_S
socket.gethostname = lambda: "web-2"

if __name__ == "__main__":
    from relevo.__main__ import main

    main()
