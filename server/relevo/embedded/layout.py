"""What lies where in the embedded server's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of everything in the folder."""

    folder: Path

    @property
    def users_lock(self) -> Path:
        """Shared by every user; the guardian stops the server when it has this lock for itself."""
        return self.folder / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Held by a user for the moment in which it looks for a guardian and starts one."""
        return self.folder / "start.lock"

    @property
    def guardian_lock(self) -> Path:
        """Held by the one guardian as long as it lives."""
        return self.folder / "guardian.lock"

    @property
    def server_lock(self) -> Path:
        """Inherited by initdb, postgres and all their children: free means that none of them is left."""
        return self.folder / "server.lock"

    @property
    def state(self) -> Path:
        """What the guardian last said."""
        return self.folder / "state.json"

    @property
    def password(self) -> Path:
        """The superuser's password, for the owner's eyes only."""
        return self.folder / "password"

    @property
    def port(self) -> Path:
        """The port the server had last, and will have again if it is free."""
        return self.folder / "port"

    @property
    def data(self) -> Path:
        """PostgreSQL's data folder; if it exists it is complete."""
        return self.folder / "data"

    @property
    def data_new(self) -> Path:
        """A data folder in the making."""
        return self.folder / "data.new"

    @property
    def postgres_log(self) -> Path:
        """The words of initdb and postgres."""
        return self.folder / "postgres.log"

    @property
    def guardian_log(self) -> Path:
        """The words of the guardian."""
        return self.folder / "guardian.log"
