"""A push service as the sandbox serves it: what it makes for senders, and who answers at each of its addresses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from relevo.sandbox.push_service import PushService
from relevo.sandbox.services.exchange import Service
from relevo.sandbox.state import SandboxState


class Served(ABC):
    """One push service that is served; `providers/<name>/sandbox/service.py` has the class as SERVED."""

    service: ClassVar[PushService]
    secret_paths: ClassVar[tuple[str, ...]] = ()
    """How those paths begin of which the rest is not shown, for it holds a token."""

    @abstractmethod
    def __init__(self, state: SandboxState, folder: Path, addresses: Sequence[str]) -> None:
        """Make its keys in the folder; `addresses` are where those that `service.addresses` names are."""

    @property
    @abstractmethod
    def services(self) -> Sequence[Service]:
        """The answering application of each address."""

    @property
    @abstractmethod
    def entry(self) -> Mapping[str, Any]:
        """The service's entry in PUSH_PROJECTS_FILE, with file names relative to the folder."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings by which Relevo sends to it, beside that file."""
        return {}

    @property
    def files(self) -> Mapping[str, Path]:
        """The files that a sender of its own needs, by name."""
        return {}

    def token(self, name: str, *words: str, home: str | None = None) -> str:
        """Return the token of a phone of this name, maybe of a home, that meets these faults."""
        return self.service.token(name, *words, home=home)

    def expire_access_tokens(self) -> None:  # noqa: B027 most give out none
        """Expire every access token that it gave out."""
