"""Merging what several sources, or several answers of one, say of the same item: pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from relevo.core.items import Item

_DATES = ("publicada_at", "cierra_at")
_MAX_FINGERPRINT = 64
_MAX_RUBROS = 2_000
_DESCRIBING = (
    "descripcion",
    "organismo",
    "region",
    "tipo",
    "estado",
    "monto",
    "rubros",
    "publicada_at",
    "cierra_at",
    "url",
)


def merge(stored: Item, newer: Item) -> Item:
    """Join what is known of an item with what a source tells of it now: field by field, the more complete value wins.

    - What is older than what is stored (`as_of`) only fills blanks. What was withdrawn stays so until something that
      is known to be newer says otherwise.
    - What is not told (None, empty) never erases what is stored.
    - State, dates, place and names: the newer telling wins, unless it says less: a name or description cut short
      is not taken for a new one, nor an id for a name, nor a bare day (`whole_days`) for a stored time on that day.
    - Money travels together: amount, currency and label come from one telling, and one with an amount beats a label.
    - Rubros of one scheme are joined, the longer list first; of two schemes the longer list stays.
    - `announces` and `withdrawn` are the newer telling's, for they are its judgement of the state.
    - The fingerprint keeps the mark of each teller, so that each recognises what it said last.
    """
    if _is_older(newer, stored):
        return _fill_blanks(stored, newer)
    monto, moneda, label = _money(stored, newer)
    rubros, scheme = _rubros(stored, newer)
    return replace(
        newer,
        namespace=stored.namespace,
        external_id=stored.external_id,
        nombre=_name(stored, newer),
        fingerprint=join_marks(stored.fingerprint, newer.fingerprint),
        descripcion=_longer(stored.descripcion, newer.descripcion),
        organismo=newer.organismo or stored.organismo,
        region=newer.region or stored.region,
        tipo=newer.tipo or stored.tipo,
        estado=newer.estado or stored.estado,
        monto=monto,
        moneda=moneda,
        monto_label=label,
        rubros=rubros,
        rubro_scheme=scheme,
        publicada_at=_dating("publicada_at", stored, newer).publicada_at,
        cierra_at=_dating("cierra_at", stored, newer).cierra_at,
        url=newer.url or stored.url,
        as_of=newer.as_of or stored.as_of,
        whole_days=tuple(name for name in _DATES if name in _dating(name, stored, newer).whole_days),
    )


def _is_older(reported: Item, stored: Item) -> bool:
    if reported.as_of is None:
        return stored.withdrawn and stored.as_of is not None and not reported.withdrawn
    return stored.as_of is not None and reported.as_of < stored.as_of


def _fill_blanks(stored: Item, older: Item) -> Item:
    """Take from an older telling what nobody said since; what it says of the state is past."""
    blanks = {name: getattr(older, name) for name in _DESCRIBING if getattr(stored, name) in (None, ())}
    if "rubros" in blanks:
        blanks["rubro_scheme"] = older.rubro_scheme
    if "monto" in blanks and stored.monto_label is None:
        blanks |= {name: getattr(older, name) for name in ("moneda", "monto_label")}
    else:
        blanks.pop("monto", None)
    return replace(stored, fingerprint=join_marks(stored.fingerprint, older.fingerprint), **blanks)


def one_each(items: Iterable[Item]) -> tuple[Item, ...]:
    """Merge tellings of the same item, in the order they were told."""
    found: dict[tuple[str, str], Item] = {}
    for item in items:
        key = (item.namespace, item.external_id)
        found[key] = merge(found[key], item) if key in found else item
    return tuple(found.values())


def mark(teller: str, *said: object) -> str:
    """Return a teller's mark for what it said: short, and different for other words."""
    words = "\x1f".join("" if each is None else str(each) for each in said)
    return f"{teller}:{hashlib.sha256(words.encode('utf-8', 'replace')).hexdigest()[:8]}"


def mark_of(fingerprint: str, teller: str) -> str | None:
    """Return a teller's own mark out of a stored fingerprint."""
    return next((each for each in fingerprint.split() if each.startswith(f"{teller}:")), None)


def join_marks(stored: str, newer: str) -> str:
    """Put a teller's new mark beside those of the other tellers, the newest first."""
    tellers = {each.partition(":")[0] for each in newer.split()}
    kept = [*newer.split(), *(each for each in stored.split() if each.partition(":")[0] not in tellers)]
    while len(kept) > 1 and len(" ".join(kept)) > _MAX_FINGERPRINT:
        kept.pop()
    return " ".join(kept)[:_MAX_FINGERPRINT]


def _longer(stored: str | None, newer: str | None) -> str | None:
    if not newer or (stored and stored.startswith(newer)):
        return stored
    return newer


def _name(stored: Item, newer: Item) -> str:
    """Return the name; a telling without one has the item's id in its place, which is no news."""
    untold = newer.nombre == newer.external_id
    return stored.nombre if untold else _longer(stored.nombre, newer.nombre) or stored.nombre


def _dating(name: str, stored: Item, newer: Item) -> Item:
    """Return whose date of this name stands: the newer one, unless it is a bare day and the stored one a time on it."""
    before: datetime | None = getattr(stored, name)
    told: datetime | None = getattr(newer, name)
    if before is None or told is None:
        return newer if before is None else stored
    says_less = name in newer.whole_days and before.astimezone(told.tzinfo).date() == told.date()
    return stored if says_less else newer


def _money(stored: Item, newer: Item) -> tuple[Decimal | None, str | None, str | None]:
    if newer.monto is not None:
        same = (newer.monto, newer.moneda or stored.moneda) == (stored.monto, stored.moneda)
        return newer.monto, newer.moneda or stored.moneda, newer.monto_label or (stored.monto_label if same else None)
    if stored.monto is not None:
        return stored.monto, stored.moneda, stored.monto_label
    return None, newer.moneda or stored.moneda, newer.monto_label or stored.monto_label


def _rubros(stored: Item, newer: Item) -> tuple[tuple[str, ...], str | None]:
    long, short = (stored, newer) if len(stored.rubros) > len(newer.rubros) else (newer, stored)
    if long.rubros and short.rubros and long.rubro_scheme and short.rubro_scheme not in (None, long.rubro_scheme):
        return long.rubros, long.rubro_scheme
    joined = tuple(dict.fromkeys([*long.rubros, *short.rubros]))[:_MAX_RUBROS]
    return joined, long.rubro_scheme or short.rubro_scheme
