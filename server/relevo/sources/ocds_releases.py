"""Contents of OCDS documents: releases, in any package, read into one item per tender."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from relevo.core.items import Item, Reject
from relevo.core.ports import SourceContext
from relevo.sources import chile, text
from relevo.sources.merging import mark, merge

MAX_REJECTS = 50
TELLER = "ocds"
_UTC = ZoneInfo("UTC")
_OLDEST = datetime(1900, 1, 1, tzinfo=UTC)
_PACKED = ("releases", "records", "results", "data")
_LISTING = ("releases", "records")
_UNSPSC = re.compile(r"(?:V\d+\.)?(\d{8})")
_CHILE = "ocds-70d2nz-"
_PREFIX = re.compile(r"(ocds-[a-z0-9]{6})-.+", re.IGNORECASE)
_BEFORE_TENDER = frozenset({"planning", "planningUpdate"})
_OF_TENDERS = frozenset({"tender", "tenderUpdate", "tenderAmendment"})
_UNMARKED = frozenset({"fingerprint", "announces", "as_of", "whole_days"})
_OPEN_STATES = frozenset({"active", "open"})
_WITHDRAWN_STATES = frozenset({"cancelled", "canceled", "withdrawn"})
_BUYERS = ("buyer", "procuringEntity")
_AHEAD = timedelta(days=1)
"""A date farther ahead than clocks and zones explain is no date of publication."""


def links(document: object) -> list[tuple[str, str]]:
    """Return ocid and address of what an index names without telling."""
    entries = [each for each in text.each(text.at(document, "data")) if isinstance(each, dict) and "tender" not in each]
    named = ((text.clean(each.get("ocid")), text.clean(each.get("urlTender"), 2_000)) for each in entries)
    return [(ocid, address) for ocid, address in named if ocid and address]


def direction(document: object) -> int:
    """Return whether a page's releases grow older (-1) or newer (1) towards its end."""
    dates = [when for release in _releases(document) if (when := _when(release))]
    return 0 if not dates or dates[0] == dates[-1] else (1 if dates[0] < dates[-1] else -1)


def _releases(document: object, *, listed: bool = False) -> Iterator[dict[str, Any]]:
    """Yield every release, however it is packed; also one, `listed` as such, that says too little to be used."""
    for part in text.each(document):
        if not isinstance(part, dict):
            continue
        packed = [key for key in _PACKED if isinstance(part.get(key), list)]
        compiled = part.get("compiledRelease")
        if isinstance(compiled, dict):
            yield {"ocid": part.get("ocid"), **compiled}
        elif packed:
            for key in packed:
                for inner in part[key]:
                    if isinstance(inner, dict) and not _is_link(inner):
                        whole = {"ocid": part.get("ocid"), **inner} if "ocid" in part else inner
                        yield from _releases(whole, listed=key in _LISTING)
        elif isinstance(part.get("releasePackage"), dict):
            yield from _releases(part["releasePackage"])
        elif {"ocid", "tender", "tag"} & part.keys() or listed:
            yield part


def _broken(document: object) -> Iterator[tuple[int, str]]:
    """Yield the places in a list of releases, or lines of a file, that hold no object."""
    parts = [part for part in text.each(document) if isinstance(part, dict)]
    lists = [part[key] for part in parts for key in _LISTING if isinstance(part.get(key), list)]
    for listed in [document, *lists] if isinstance(document, list) else lists:
        for number, part in enumerate(listed, start=1):
            if not isinstance(part, dict):
                yield number, "it is no JSON object"


def _is_link(entry: Mapping[str, Any]) -> bool:
    return "urlTender" in entry and "tender" not in entry


def _short(name: str) -> str:
    """Return a name that fits; of a longer one the rest is hashed, so that two of them stay two."""
    if len(name) <= text.EXTERNAL_ID:
        return name
    return f"{name[: text.EXTERNAL_ID - 33]}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _tags(release: Mapping[str, Any]) -> set[str]:
    return {str(tag) for tag in text.each(release.get("tag"))}


def _when(release: Mapping[str, Any]) -> datetime | None:
    return text.moment(release.get("date"), zone=_UTC)


class _Unusable(Exception):  # noqa: N818 a state of affairs: this release cannot be used
    """A release says something that cannot be read and must not be passed over."""


@dataclass
class _Rejects:
    """The rejects of one document: the first of them one by one, the rest as a number."""

    place: str
    found: list[Reject] = field(default_factory=list)
    left_out: int = 0

    def add(self, where: object, reason: str, external_id: str | None = None) -> None:
        """Keep one more."""
        if len(self.found) < MAX_REJECTS:
            self.found.append(text.reject(f"{self.place}#{where}", reason, external_id=external_id))
            return
        self.left_out += 1
        self.found[MAX_REJECTS - 1 :] = [
            text.reject(f"{self.place}#more", f"{self.left_out + 1} more could not be used, the last: {reason}")
        ]


class Reader:
    """Reads documents into one item per tender."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    def name_of(self, ocid: str) -> tuple[str, str]:
        """Return the register a tender belongs to and its name there; Chile's ocid holds the tender's code."""
        if ocid.lower().startswith(_CHILE):
            return self._namespace or chile.NAMESPACE, _short(ocid[len(_CHILE) :].upper())
        prefix = _PREFIX.fullmatch(ocid)
        return self._namespace or (prefix[1].lower() if prefix else "ocds"), _short(ocid)

    def unknown(self, links: Sequence[tuple[str, str]], context: SourceContext) -> list[tuple[str, str]]:
        """Keep the links to tenders that are not stored yet."""
        names = {ocid: self.name_of(ocid) for ocid, _ in links}
        stored: set[tuple[str, str]] = set()
        for register in {namespace for namespace, _ in names.values()}:
            ids = [external_id for namespace, external_id in names.values() if namespace == register]
            stored |= {(register, external_id) for external_id in context.known(register, ids)}
        return [link for link in links if names[link[0]] not in stored]

    def read(self, document: object, now: datetime, place: str) -> tuple[list[Item], list[Reject]]:
        """Return one item per ocid, told by its releases from old to new, and what could not be used."""
        by_ocid: dict[str, list[dict[str, Any]]] = {}
        rejects = _Rejects(place)
        for number, release in enumerate(_releases(document), start=1):
            ocid = text.clean(release.get("ocid"))
            tender = release.get("tender")
            if not ocid:
                rejects.add(f"release-{number}", "a release without an ocid")
            elif tender is not None and not isinstance(tender, dict):
                rejects.add(f"release-{number}", "its tender is no object", ocid)
            elif tender is None and (untold := _untold(release)):
                rejects.add(f"release-{number}", untold, ocid)
            else:
                by_ocid.setdefault(ocid, []).append(release)
        for number, what in _broken(document):
            rejects.add(number, what)
        if not by_ocid and not rejects.found and not _is_empty(document):
            return [], [text.reject(place, "no release could be found in it")]
        items = []
        for ocid, releases in by_ocid.items():
            try:
                joined = self._joined(ocid, releases, now)
            except _Unusable as unusable:
                rejects.add(ocid, str(unusable), ocid)
                continue
            if joined is not None:
                items.append(joined)
        return items, rejects.found

    def _joined(self, ocid: str, releases: list[dict[str, Any]], now: datetime) -> Item | None:
        """Return what a tender's releases say together, from old to new."""
        credible = [when for release in releases if (when := _when(release)) and when <= now + _AHEAD]
        latest = max(credible, default=None)
        told = [(_told_at(release, now, latest), release) for release in releases]
        told.sort(key=lambda each: (each[0] or _OLDEST, "tenderCancellation" in _tags(each[1])))
        versions = [item for when, release in told if (item := self._item(ocid, release, now, when))]
        if not versions:
            return None
        joined = versions[0]
        for item in versions[1:]:
            joined = merge(joined, item)
        return joined

    def _item(self, ocid: str, release: Mapping[str, Any], now: datetime, when: datetime | None) -> Item | None:
        """Read a release; before the tender itself is published there is nothing to tell."""
        tender, tags = text.at(release, "tender"), _tags(release)
        if tender is None and "tenderCancellation" in tags:
            tender = {}  # that it is cancelled is all there is to tell
        if not isinstance(tender, dict) or (tags and tags <= _BEFORE_TENDER):
            return None
        namespace, external_id = self.name_of(ocid)
        chilean = ocid.lower().startswith(_CHILE)
        nombre = text.clean(tender.get("title"), text.NOMBRE) or text.clean(tender.get("description"), text.NOMBRE)
        estado, is_open, withdrawn = _state(tender, tags, chilean=chilean)
        # Chile writes its local time and calls it UTC.
        zone, trust = (text.SANTIAGO, False) if chilean else (_UTC, True)
        if not isinstance(tender.get("tenderPeriod"), dict | None):
            raise _Unusable(f"tenderPeriod is no object: {text.clean(tender['tenderPeriod'], 50) or 'a list'}")
        closes = text.at(tender, "tenderPeriod", "endDate")
        cierra_at = text.moment(closes, zone=zone, end_of_day=True, trust_offset=trust)
        if closes not in (None, "") and cierra_at is None and not text.is_out_of_range(closes):
            raise _Unusable(f"tenderPeriod.endDate cannot be read: {text.clean(closes, 50) or type(closes).__name__}")
        starts = text.at(tender, "tenderPeriod", "startDate")
        rubros, scheme = _classified(tender)
        monto = text.amount(text.at(tender, "value", "amount"), lone_point="thousands" if chilean else "decimal")
        published = tender.get("datePublished") or starts or release.get("date")
        days = {"publicada_at": published, "cierra_at": closes}
        item = Item(
            namespace,
            external_id,
            nombre or external_id,
            "",
            descripcion=text.clean(tender.get("description"), text.DESCRIPCION),
            organismo=_buyer(release, chilean=chilean),
            region=_region(release),
            tipo=chile.tipo_of(external_id) if chilean else _method(tender),
            estado=estado,
            monto=monto,
            moneda=text.currency(text.at(tender, "value", "currency")),
            rubros=rubros,
            rubro_scheme=scheme,
            publicada_at=text.moment(published, zone=zone, trust_offset=trust),
            cierra_at=cierra_at,
            url=chile.page_of(external_id) if chilean else _url(tender),
            announces=is_open and (cierra_at is None or cierra_at > now),
            withdrawn=withdrawn,
        )
        whole = tuple(name for name, told in days.items() if text.is_bare_day(told))
        return replace(_marked(item, when), as_of=when, whole_days=whole)


def _told_at(release: Mapping[str, Any], now: datetime, latest: datetime | None) -> datetime | None:
    """Return when a release was told; of one dated ahead nothing is known but that it was told by now."""
    when = _when(release)
    return when if when is None or when <= now + _AHEAD else latest


def _untold(release: Mapping[str, Any]) -> str:
    """Return why a release without a tender cannot be used, although it has content."""
    tags = _tags(release)
    if tags & _OF_TENDERS:
        return f"it is tagged {min(tags & _OF_TENDERS)} and has no tender"
    if "versionedRelease" in release:
        return "a record with nothing but a versioned release: its releases or a compiled one are needed"
    if not tags and text.link(release.get("url")):
        return "a release that is named by its address alone: the package must hold it"
    return ""


def _marked(item: Item, when: datetime | None) -> Item:
    """Give an item its mark: its release's minute, by which older tellings are known, and a hash of what it says."""
    minutes = max(int(when.timestamp() // 60), 0) if when else 0
    said = [getattr(item, each.name) for each in fields(item) if each.name not in _UNMARKED]
    teller, digest = mark(TELLER, *said).split(":")
    return replace(item, fingerprint=f"{teller}:{minutes:08x}.{digest}")


def _is_empty(document: object) -> bool:
    """Distinguish a package that holds nothing, or only names others, from a document that is no package."""
    lists = [text.at(document, key) for key in _PACKED]
    return document == [] or bool(links(document)) or any(found == [] for found in lists)


def _state(tender: Mapping[str, Any], tags: set[str], *, chilean: bool) -> tuple[str | None, bool, bool]:
    status = (text.clean(tender.get("status"), text.SHORT) or "").lower()
    details = chile.state_name(tender.get("statusDetails")) if chilean else None
    withdrawn = status in _WITHDRAWN_STATES or "tenderCancellation" in tags or details in chile.WITHDRAWN
    is_open = not withdrawn and (details == chile.OPEN if details else status in _OPEN_STATES)
    if not status and not details:
        is_open = not withdrawn and bool(tags & _OF_TENDERS)
    return details or status or None, is_open, withdrawn


def _classified(tender: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Return the codes of one scheme: UNSPSC where there is any, else the first that is told."""
    codes: list[tuple[str, object]] = []
    for holder in [tender, *text.each(tender.get("items"))]:
        given = [
            *text.each(text.at(holder, "classification")),
            *text.each(text.at(holder, "additionalClassifications")),
        ]
        codes += [((text.clean(text.at(each, "scheme"), 50) or ""), text.at(each, "id")) for each in given]
    codes = [(scheme, code) for scheme, code in codes if text.code(code)]
    if not codes:  # Colombia writes an item's UNSPSC code as its id, and no classification
        ids = [_UNSPSC.fullmatch(text.code(text.at(item, "id")) or "") for item in text.each(tender.get("items"))]
        codes = [("UNSPSC", found[1]) for found in ids if found]
    schemes = [scheme for scheme, _ in codes]
    chosen = next((scheme for scheme in schemes if scheme.upper() == "UNSPSC"), schemes[0] if schemes else "")
    return text.codes([code for scheme, code in codes if scheme == chosen]), chosen or None


def _parties(release: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = [each for each in text.each(release.get("parties")) if isinstance(each, dict)]
    buyers = [each for each in named if set(_BUYERS) & {str(role) for role in text.each(each.get("roles"))}]
    inside = [release.get("buyer"), text.at(release, "tender", "procuringEntity")]
    return [*buyers, *(each for each in inside if isinstance(each, dict))]


def _buyer(release: Mapping[str, Any], *, chilean: bool) -> str | None:
    names = [text.clean(text.at(release, "buyer", "name"), text.ORGANISMO)]
    names += [text.clean(each.get("name"), text.ORGANISMO) for each in _parties(release)]
    name = next((each for each in names if each), None)
    # Chile writes "organism | unit".
    return name.partition(" | ")[0] if name and chilean else name


def _region(release: Mapping[str, Any]) -> str | None:
    places = [text.at(each, "address", "region") for each in _parties(release)]
    for item in text.each(text.at(release, "tender", "items")):
        places += [text.at(item, "deliveryAddress", "region")]
        places += [text.at(each, "region") for each in text.each(text.at(item, "deliveryAddresses"))]
    return next((found for place in places if (found := text.clean(place, text.REGION))), None)


def _method(tender: Mapping[str, Any]) -> str | None:
    details = text.clean(tender.get("procurementMethodDetails"), 1_000)
    return (
        details if details and len(details) <= text.SHORT else text.clean(tender.get("procurementMethod"), text.SHORT)
    )


def _url(tender: Mapping[str, Any]) -> str | None:
    documents = [each for each in text.each(tender.get("documents")) if isinstance(each, dict)]
    notices = [each.get("url") for each in documents if each.get("documentType") == "tenderNotice"]
    for link in (tender.get("url"), tender.get("uri"), *notices):
        if address := text.link(link):
            return address
    return None
