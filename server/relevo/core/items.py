"""The data that sources return: items, rejects, and how asking went."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal


@dataclass(frozen=True)
class Item:
    """A tender as one source tells of it; what the source does not say is None."""

    namespace: str
    external_id: str
    nombre: str
    fingerprint: str
    """Changes exactly when what the source said has changed in a way worth reading again."""
    descripcion: str | None = None
    organismo: str | None = None
    region: str | None = None
    tipo: str | None = None
    estado: str | None = None
    monto: Decimal | None = None
    moneda: str | None = None
    monto_label: str | None = None
    rubros: tuple[str, ...] = ()
    rubro_scheme: str | None = None
    publicada_at: datetime | None = None
    cierra_at: datetime | None = None
    url: str | None = None
    announces: bool = True
    """Whether it is open for offers, so that a new one is worth an event; once it is not, what is left is cancelled."""
    withdrawn: bool = False
    """Whether it was revoked or suspended: that stays until something newer is said of it."""
    as_of: datetime | None = None
    """When its source said this; what is older than what is stored only fills blanks."""
    whole_days: tuple[str, ...] = ()
    """Which of `publicada_at` and `cierra_at` were told as a day alone: a stored time on that day is more exact."""


@dataclass(frozen=True)
class News:
    """Anything worth telling that is no tender: a post, a release, a notice. Its tags are matched as rubros are."""

    namespace: str
    external_id: str
    title: str
    text: str | None = None
    link: str | None = None
    published_at: datetime | None = None
    tags: tuple[str, ...] = ()
    open_until: datetime | None = None
    """When it is no longer worth telling."""
    as_of: datetime | None = None

    def as_item(self) -> Item:
        """Return it as the item that is stored; its fingerprint is made of all it says."""
        said = repr((self.title, self.text, self.link, self.published_at, self.tags, self.open_until))
        return Item(
            self.namespace,
            self.external_id,
            self.title,
            f"news:{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}",
            descripcion=self.text,
            rubros=self.tags,
            rubro_scheme="tag" if self.tags else None,
            publicada_at=self.published_at,
            cierra_at=self.open_until,
            url=self.link,
            as_of=self.as_of,
        )


@dataclass(frozen=True)
class Reject:
    """An entry of a source that could not be used: its place and the reason."""

    place: str
    reason: str
    external_id: str | None = None
    retry: bool = False
    """Whether trying again later may help without anybody mending it."""


@dataclass(frozen=True)
class Fetched:
    """The answer of a source; "could not ask" (unavailable, rejected) is never "nothing new" (unchanged, ok)."""

    outcome: Literal["ok", "unchanged", "unavailable", "rejected"]
    cursor: Mapping[str, Any]
    """Where to go on; committed together with the items."""
    items: tuple[Item | News, ...] = ()
    rejects: tuple[Reject, ...] = ()
    resolved: tuple[str, ...] = ()
    """Places of earlier rejects that are mended now."""
    detail: str = ""
    more: bool = False
    """Whether the source has more to say at once."""
    incomplete: bool = False
    """Whether this pass left something out that was there: a first pass is over only when it was whole."""
    seen: tuple[tuple[str, str], ...] = ()
    """Namespace and name of items that are there and could not be read yet: they are no news later."""
    problems: tuple[str, ...] = ()
    """Open problems of the source, for readers of its health."""
