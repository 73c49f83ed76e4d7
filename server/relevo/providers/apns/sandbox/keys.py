"""The signing keys of the sandbox's team."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from relevo.sandbox.services.keys import ec_key

KEY_ID = "SANDBOXKEY"
TEAM_ID = "SANDBOXTEA"
MAX_KEYS = 100


@dataclass(frozen=True)
class ApnsKey:
    """A signing key of the team; one that is bound to an environment is refused in the other."""

    public: ec.EllipticCurvePublicKey
    environment: str | None = None


class ApnsKeys:
    """The team's keys, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.by_id: dict[str, ApnsKey] = {}

    def add(self, key_id: str, environment: str | None) -> Path:
        """Make one more key, for both environments or for one; return its file."""
        if len(self.by_id) >= MAX_KEYS:
            raise ValueError(f"There are {MAX_KEYS} keys already.")
        file = self._folder / f"AuthKey_{key_id}.p8"
        self.by_id[key_id] = ApnsKey(ec_key(file).public_key(), environment)
        return file
