"""Signs provider tokens of APNs as a worker does, from the database's issue times: a line `get` or `younger`, a token."""

from __future__ import annotations

import sys
from pathlib import Path

from relevo.config import load
from relevo.database.pool import Database
from relevo.providers.apns import credentials
from relevo.providers.apns.entry import ApnsEntry
from relevo.providers.push_projects import PushProjects


def main() -> None:
    """Answer line by line until there are no more."""
    dsn, file = sys.argv[1:]
    project = PushProjects(Path(file), checks={"apns": credentials.check}).all(ApnsEntry)["default"]
    times = credentials.SharedIssueTimes(Database(dsn, dsn, load({}, None)))
    tokens = credentials.ApnsTokens(times, read_every_s=0)
    for line in sys.stdin:
        print(getattr(tokens, line.strip())(project), flush=True)


if __name__ == "__main__":
    main()
