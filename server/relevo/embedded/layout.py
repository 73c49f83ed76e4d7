"""What lies where in the embedded server's folder."""

from __future__ import annotations

from pathlib import Path


class Layout:
    """The names of everything in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users_lock = folder / "users.lock"
        """Shared by every user; the guardian stops the server when it has this lock for itself."""
        self.start_lock = folder / "start.lock"
        """Held by a user for the moment in which it looks for a guardian and starts one."""
        self.guardian_lock = folder / "guardian.lock"
        """Held by the one guardian as long as it lives."""
        self.server_lock = folder / "server.lock"
        """Inherited by initdb, postgres and all their children: free means that none of them is left."""
        self.state = folder / "state.json"
        """What the guardian last said."""
        self.password = folder / "password"
        """The superuser's password, for the owner's eyes only."""
        self.port = folder / "port"
        """The port the server had last, and will have again if it is free."""
        self.data = folder / "data"
        """PostgreSQL's data folder; if it exists it is complete."""
        self.data_new = folder / "data.new"
        """A data folder in the making."""
        self.postgres_log = folder / "postgres.log"
        """The words of initdb and postgres."""
        self.guardian_log = folder / "guardian.log"
        """The words of the guardian."""
