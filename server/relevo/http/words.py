"""The texts of event types over HTTP: save a version, read it, see how it looks in every language."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.core.locales import LOCALE
from relevo.core.patterns import MOST_PATTERN, NAME
from relevo.core.wordings import MOST_ARGUMENTS, MOST_LOCALES, Wording
from relevo.core.wordings import Text as Said
from relevo.http.database_threads import rendering_of, threads_of
from relevo.http.fields import Body, Exact, Text, Text35, Text64, Text100
from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.problems import missing
from relevo.operators import words

router = APIRouter(route_class=Guarded, tags=["words"])


class TextIn(Body):
    """Texts of one language, as patterns of ICU's MessageFormat with the styles that Words lists."""

    title: Annotated[Text, Field(min_length=1, max_length=MOST_PATTERN)]
    body: Annotated[Text, Field(max_length=MOST_PATTERN)] = ""
    subtitle: Annotated[Text, Field(max_length=MOST_PATTERN)] = ""


class WordsIn(Body):
    """The texts of an event type in all its languages."""

    type: Text100
    default: Text35 | None = Field(
        None, description="The locale for phones that no other locale fits. With one locale it is that one."
    )
    arguments: dict[str, str | int | float] = Field(
        default_factory=dict,
        json_schema_extra={"propertyNames": {"pattern": f"^{NAME.pattern}$"}},
        max_length=MOST_ARGUMENTS,
        description="The arguments that texts name, with a sample.",
    )
    texts: dict[str, TextIn | Text35] = Field(
        min_length=1,
        max_length=MOST_LOCALES,
        json_schema_extra={"propertyNames": {"pattern": f"^{LOCALE.pattern}$"}},
        description="By locale: a text, or another locale whose words it takes, with its own numbers and dates.",
    )


class PreviewIn(WordsIn):
    """The rendered texts of an event type."""

    given: dict[str, str | int | float] = Field(
        default_factory=dict, max_length=MOST_ARGUMENTS, description="Arguments in place of the samples."
    )
    timezone: Text64 | None = Field(None, description="The phone's time zone. Default: UTC.")


class SavedBody(BaseModel):
    """Which version it is, and whether that is new: the same as the current one is that one."""

    type: str
    version: int
    created: bool


class WordsBody(Exact):
    """A version of what an event type says."""

    type: str
    version: int
    default: str
    zoned: bool = Field(description="Whether a text names a time, so that it differs by the phone's time zone.")
    arguments: dict[str, Any] = Field(description="Of each its kind (number, text or time) and a sample.")
    texts: dict[str, dict[str, str]]
    created_at: str


class WordsPage(BaseModel):
    """The types that have texts, each with its current version."""

    items: list[WordsBody]
    next: str | None = Field(description="The type to go on behind (`after`), if there may be more.")


class PreviewBody(BaseModel):
    """How it looks in every language."""

    texts: dict[str, dict[str, str]]


_MISSING = missing("The type, or that version of it, has no texts.")


@router.post(
    "/v1/words", responses={200: {"model": SavedBody}, 201: {"model": SavedBody, "description": "It is a new version."}}
)
async def save_words(request: Request, asked: WordsIn) -> Response:
    """Save an event type's texts as its next version, if every language renders with the sample and fits.

    A type may get 100 new versions within 24 hours, all types together 1,000.
    """
    providers = await threads_of(request).run_statement(words.providers_of)
    wording, rendered = await rendering_of(request).call(_check, asked, providers)
    saved = await threads_of(request).run(words.save_checked, wording, rendered)
    return Json({"type": asked.type, **saved._asdict()}, 201 if saved.created else 200)


@router.get("/v1/words", responses={200: {"model": WordsPage}})
async def list_words(
    request: Request,
    after: Annotated[str, Query(max_length=100, description="The last type of the page before.")] = "",
    limit: Annotated[
        int, Query(ge=1, le=100, description="How many at most; a page ends earlier after 500,000 bytes of texts.")
    ] = 20,
) -> Response:
    """List the event types that have texts, each with its current version."""
    rows, more = await threads_of(request).run(words.list_words, after, limit)
    return Json({"items": [_told(row) for row in rows], "next": rows[-1]["event_type"] if more else None})


@router.get("/v1/words/{event_type}", responses={200: {"model": WordsBody}, **_MISSING})
async def get_words(
    request: Request,
    event_type: str,
    version: Annotated[int | None, Query(ge=1, lt=2**31, description="The current one if left out.")] = None,
) -> Response:
    """Return a version of an event type's texts."""
    return Json(_told(await threads_of(request).run(words.show, event_type, version)))


@router.post("/v1/words/preview", responses={200: {"model": PreviewBody}})
async def preview_words(request: Request, asked: PreviewIn) -> Response:
    """Check texts as if they were saved, and show how they look in every language.

    A process renders one preview at a time; a call that waited two seconds gets 503 with Retry-After.
    """
    providers = await threads_of(request).run_statement(words.providers_of)
    shown = await rendering_of(request).call(_preview, asked, providers)
    return Json({"texts": {locale: text.fields() for locale, text in shown.items()}})


def _check(asked: WordsIn, providers: list[str]) -> tuple[Wording, dict[str, Said]]:
    wording = words.parse(asked.model_dump(exclude_unset=True, include=set(WordsIn.model_fields)))
    return wording, words.check(wording, providers)


def _preview(asked: PreviewIn, providers: list[str]) -> dict[str, Said]:
    wording, _ = _check(asked, providers)
    return words.preview(wording, asked.given, asked.timezone)


_TOLD = ("version", "zoned", "arguments", "texts", "created_at")


def _told(row: dict[str, Any]) -> dict[str, Any]:
    named = {"type": row["event_type"], "default": row["default_locale"]}
    return named | {name: row[name] for name in _TOLD}
