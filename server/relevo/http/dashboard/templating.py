"""The templates of the pages: one Jinja2 environment, and the filters and functions that templates use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from relevo import cycles
from relevo.client.progress import progress_of
from relevo.core import i18n
from relevo.core.addresses import is_local
from relevo.core.known_services import LABELS
from relevo.core.phrases import clipped
from relevo.core.sending_project import project_in_words, slow_starter
from relevo.core.version import __version__
from relevo.http.dashboard import explanations, formats
from relevo.operators import reasons
from relevo.operators.timeline import is_taken

_TAG = re.compile(r"<[^<>]*>")
_CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
_SHORT = 16
_FILTERS: tuple[Callable[..., Any], ...] = (
    *(formats.ago, clipped, formats.cycle_name, formats.duration, formats.instant, formats.number),
    *(formats.sentence, formats.short, formats.size, i18n.translated, formats.in_words, formats.named, formats.state),
    project_in_words,
    slow_starter,
)


def table(heads: Sequence[str], rows: Sequence[Any], label: str, empty: str, caller: Callable[[Any], Markup]) -> Markup:
    """Write a table: `{% call(row) table(heads, rows, label, empty) %}<td>…</td><td>…</td>{% endcall %}`.

    Columns that are empty in every row are left out. Each cell knows its head, for windows without room for columns.
    """
    if not rows:
        return Markup('<p class="faint">%s</p>') % empty
    cells = [[each.strip() for each in _CELL.findall(caller(row))] for row in rows]
    shown = [(place, escape(head)) for place, head in enumerate(heads) if any(row[place] for row in cells)]
    head = "".join(f'<th scope="col">{name}</th>' for _, name in shown)
    body = "".join(f"<tr>{''.join(_cell(name, row[place]) for place, name in shown)}</tr>" for row in cells)
    written = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return Markup(f'<table aria-label="{escape(label)}">{written}</table>')  # noqa: S704 cells are markup already


def _cell(head: Markup, written: str) -> str:
    """Write a cell; what is short stays on one line, where there is room."""
    whole = ' class="whole"' if len(" ".join(_TAG.sub("", written).split())) <= _SHORT else ""
    return f'<td data-head="{head}"><div{whole}>{written}</div></td>'


def alike_by(items: Iterable[Any], write: Callable[[Any], Markup]) -> list[tuple[Markup, list[Any]]]:
    """Return each text that a macro writes of some items, once, with all items of which it writes this text."""
    alike: dict[Markup, list[Any]] = {}
    for each in items:
        alike.setdefault(write(each).strip(), []).append(each)
    return list(alike.items())


def alike_rows(rows: Iterable[Mapping[str, Any]], *names: str) -> list[list[Mapping[str, Any]]]:
    """Return rows in their order, with those together that follow each other and have equal values under some names."""
    return [list(each) for _values, each in groupby(rows, key=lambda row: [row[name] for name in names])]


def is_local_link(address: str) -> bool:
    """Return whether an address is a page on this very machine; no other address outside becomes a link."""
    parts = urlsplit(address)
    return parts.scheme in ("http", "https") and is_local(parts.hostname or "")


def _in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter that is called for each page: Jinja2 computes others once, in whatever language comes first."""

    @pass_context
    def called(_context: Context, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do", "jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    made.install_gettext_callables(i18n.gettext, i18n.ngettext)  # type: ignore[attr-defined] # by the i18n extension
    made.globals |= {
        "address": formats.address,
        "badge": formats.badge,
        "cycle_facts": cycles.facts,
        "explanations": explanations,
        "is_taken": is_taken,
        "languages": i18n.LANGUAGES,
        "owner_path": formats.owner_path,
        "percent": formats.percent,
        "progress_of": progress_of,
        "provider_labels": LABELS,
        "reasons": reasons,
        "round_up": formats.round_up,
        "table": table,
        "version": __version__,
    }
    made.filters |= {each.__name__: _in_context(each) for each in _FILTERS}
    made.filters |= {"alike_by": alike_by, "alike_rows": alike_rows}
    made.tests["local_link"] = is_local_link
    return made


ENVIRONMENT = _environment()
