"""Writing HTML: whatever is not markup of our own is escaped, always."""

# ruff: noqa: S704
from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup

from relevo.core.addresses import is_loopback

__all__ = ["Markup"]
_VOID = frozenset({"input", "meta", "link", "br", "hr"})
_LINKS = ("/", "#")

Child = Any
"""A Markup, a text, a number, None for nothing, or several of these."""


def text(child: Child) -> Markup:
    """Write a child: markup as it is, lists one after the other, None as nothing, everything else escaped."""
    if isinstance(child, Markup):
        return child
    if child is None:
        return Markup("")
    if isinstance(child, Iterable) and not isinstance(child, str):
        return Markup("".join(text(each) for each in child))
    return Markup(escape(_whole(str(child))))


def el(name: str, /, *children: Child, **attributes: object) -> Markup:
    """Write an element: `el("a", "text", href="/x", class_="y")`; None and False leave an attribute out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{text(children)}</{name}>")


def outside(address: str, *children: Child) -> Markup:
    """Lead to a page on this very machine that is not ours; any other address is no link."""
    parts = urlsplit(_whole(address))
    if parts.scheme not in ("http", "https") or not (
        parts.hostname == "localhost" or is_loopback(parts.hostname or "")
    ):
        return text(children)
    return Markup(f'<a href="{escape(_whole(address))}" rel="noreferrer">{text(children)}</a>')


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {key}"
    written = _whole(str(value))
    if key in ("href", "src", "action") and (not written.startswith(_LINKS) or written.startswith(("//", "/\\"))):
        written = "#"  # pages lead to pages of ours, wherever an address came from
    return f' {key}="{escape(written)}"'


def _whole(written: str) -> str:
    """Return text that can be encoded: half of a pair of surrogates cannot."""
    return written.encode("utf-8", "replace").decode()
