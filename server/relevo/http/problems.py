"""Errors as callers see them: problem+json (RFC 9457), naming field and reason, with nothing secret in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from relevo.access.phones import NoProofError, NotAllowedError
from relevo.core.errors import (
    DatabaseUnavailableError,
    EventConflictError,
    InvalidInputError,
    MigrationError,
    NotFoundError,
    RelevoError,
    TooManyChoicesError,
    UsageError,
)
from relevo.core.logs import scrub
from relevo.database.outages import BUSY
from relevo.verbs.events import StartedError

_PLACE = re.compile(r"^(?P<place>events\.\d+): ")
_FIELD = re.compile(
    r"^(?P<field>[a-z_]+(?:\.[A-Za-z0-9_]+)*) (?:must|holds|is nested|is a number|has a key|says|are)"
    r"|^(?:(?P<of>push[A-Za-z.]*)|.*?) has no field (?P<unknown>[^,;]+?)\.?(?:$|[,;])"
)
_TOGETHER = {
    "an event must say something": ("title", "body", "data"),
    "title, body, data and push": ("title", "body", "data", "push"),
}
"""The phrases of several fields' faults, by their beginning."""
_OF_PYDANTIC = re.compile(r"^(?:Input|String|Value|List|Dictionary|Tuple|Set|URL|Datetime) should ")
_IN_WORDS = {
    "missing": "must be given",
    "list_type": "must be a list",
    "string_type": "must be text",
    "extra_forbidden": "is not known here",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a JSON object"),
    **dict.fromkeys(("uuid_type", "uuid_parsing"), "must be a UUID"),
}
"""pydantic's faults, by its types of errors; others keep pydantic's sentence from the verb on."""
_WRITTEN = {
    "after": "the value that the page before gave",
    "before": "the value that the page before gave",
    "cursor": "the value that the page before gave",
    "delivery": "now, hourly, daily 08:00 or weekly mon 08:00",
    "moneda": "three capital letters, such as CLP",
    "rubro": "letters, digits and dashes",
    "rubro_prefix": "letters, digits and dashes",
    "windows": "like 22:00-07:00 or sat,sun 07:00-10:00",
}
"""How fields are written that have a pattern."""
_SHOWN = ("literal_error", "enum", "string_pattern_mismatch", "greater_than", "less_than", "int_", "bool_", "uuid_")
_MAX_SHOWN = 60
_MAX_ERRORS = 20
_MAX_TEXT = 300
_MAX_COMPLAINT = 1_000
_MAX_SCANNED = 3_000  # a secret that begins in what is told is seen whole
_SOON_S = 1
_HOUR_S = 3_600
_JSON_ONLY = "Send JSON, with the header Content-Type: application/json."
_TITLES = {
    400: "Bad request",
    401: "Unauthorised",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Content too large",
    414: "Address too long",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Service unavailable",
}


_STRANGER = 401
_STATUSES: dict[type[RelevoError], tuple[int, str]] = {
    NoProofError: (_STRANGER, ""),
    NotAllowedError: (403, ""),
    NotFoundError: (404, ""),
    StartedError: (409, "event-started"),
    UsageError: (400, "invalid"),
}
"""The status of an error that is told as it is, and its kind if its status does not name it."""


class FieldError(BaseModel):
    """The complaint about one field."""

    field: str
    reason: str


class ProblemBody(BaseModel):
    """An error, as RFC 9457 has it."""

    type: str = Field(description="urn:relevo: and a word that names the kind of error")
    title: str
    status: int
    detail: str
    hint: str | None = Field(None, description="the next step")
    errors: list[FieldError] | None = None
    request_id: str | None = None


def missing(description: str) -> dict[int | str, dict[str, Any]]:
    """Declare in the API's document that a route may answer 404, and its meaning there."""
    return {404: {"model": ProblemBody, "description": description}}


class Problem(Exception):  # noqa: N818 an answer, not a surprise
    """An error that the caller is told: raise it from anywhere in a route."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        hint: str = "",
        errors: Sequence[Mapping[str, str]] = (),
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind or _TITLES.get(status, "error").lower().replace(" ", "-")
        self.hint = hint
        self.errors = [{name: _told(text) for name, text in each.items()} for each in list(errors)[:_MAX_ERRORS]]
        self.headers = dict(headers or {}) | (
            {"WWW-Authenticate": 'Bearer realm="relevo"'} if status == _STRANGER else {}
        )
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)

    def response(self, request_id: str | None) -> Response:
        """Write it as problem+json."""
        body: dict[str, Any] = {
            "type": f"urn:relevo:{self.kind}",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": _told(self.detail),
        }
        body |= {"hint": _told(self.hint)} if self.hint else {}
        body |= {"errors": self.errors} if self.errors else {}
        body |= {"request_id": request_id} if request_id else {}
        return Response(orjson.dumps(body), self.status, self.headers, "application/problem+json")


def invalid(field: str, reason: str) -> Problem:
    """Return the problem of one field that is not valid."""
    return Problem(400, f"{field}: {reason}", kind="invalid", errors=[{"field": field, "reason": _told(reason)}])


def busy(detail: str) -> Problem:
    """Return the problem of a service that has no room for a moment."""
    return Problem(503, detail, kind="busy", retry_after_s=_SOON_S)


def of_error(error: Exception) -> Problem:  # noqa: PLR0911 a table
    """Return the problem for a caller of one of our errors, or of PostgreSQL's."""
    match error:
        case Problem():
            return error
        case EventConflictError():
            hint = 'Use another key for another event; "on_conflict": "keep" keeps the existing event.'
            return Problem(409, error.message, kind="other-content", hint=hint)
        case TooManyChoicesError():
            return Problem(429, error.message, kind="too-many-choices", hint=error.hint, retry_after_s=_HOUR_S)
        case InvalidInputError():
            named = [{"field": field, "reason": error.message} for field in _fields(error.message)]
            return Problem(400, error.message, kind="invalid", hint=error.hint, errors=named)
        case DatabaseUnavailableError() | MigrationError():
            return Problem(503, "The database cannot be used right now.", kind="database", retry_after_s=2 * _SOON_S)
        case RelevoError():
            status, name = next((told for kind, told in _STATUSES.items() if isinstance(error, kind)), (500, ""))
            return Problem(status, error.message, kind=name, hint=error.hint)
        case psycopg.Error() if isinstance(error, BUSY):
            return busy("Another transaction holds what this request needs in the database.")
        case psycopg.DataError() | UnicodeError():
            return Problem(400, "A text holds a character that the database cannot store, such as NUL.", kind="invalid")
        case _:
            return Problem(500, "Relevo met an unexpected error; its log has the cause under the request id.")


def _fields(complaint: str) -> list[str]:
    """Return the fields that a complaint of the SQL functions names, in a batch with the event's place before each."""
    at = _PLACE.match(complaint)
    said = complaint[at.end() :][:_MAX_COMPLAINT] if at else complaint[:_MAX_COMPLAINT]
    found = _FIELD.search(said)
    names = [found["field"] or ".".join(filter(None, (found["of"], found["unknown"])))] if found else []
    names = next((list(fields) for begins, fields in _TOGETHER.items() if said.startswith(begins)), names)
    return [f"{at['place']}.{name}" if at else name for name in (each[:100] for each in names)]


def install(app: FastAPI) -> None:
    """Answer every error as problem+json."""
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _note_leaving)
    for kind in (Problem, RelevoError, UnicodeError, psycopg.Error):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(Exception, _answer_surprise)


def request_id_of(request: Request) -> str | None:
    """Return the request's id."""
    found = request.scope.get("state", {}).get("request_id")
    return str(found) if found else None


async def _answer(request: Request, error: Exception) -> Response:
    problem = of_error(error)
    if problem.status == 500:  # noqa: PLR2004
        structlog.get_logger("relevo.http").error("http_failed", exc_info=error)
    return problem.response(request_id_of(request))


async def _note_leaving(request: Request, _error: Exception) -> Response:
    return Problem(400, "The caller left before the body was whole.").response(request_id_of(request))


async def _answer_surprise(request: Request, error: Exception) -> Response:
    return of_error(error).response(request_id_of(request))  # Starlette raises it again, and the middleware logs it


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, RecursionError | ValueError):  # by which FastAPI could not parse a body
        return invalid("body", _unparsed(error.__cause__)).response(request_id_of(request))
    headers, detail = error.headers, str(error.detail)
    if error.status_code == 404:  # noqa: PLR2004
        detail = "There is nothing at this address."
    if error.status_code == 405:  # noqa: PLR2004
        methods = _methods(request)
        headers, detail = {"Allow": ", ".join(methods)}, f"This address takes {' or '.join(methods)}."
    return Problem(error.status_code, detail, headers=headers).response(request_id_of(request))


def _unparsed(error: RecursionError | ValueError) -> str:
    """Return why a body could not be parsed, though it may be JSON."""
    match error:
        case RecursionError():
            return "is nested too deeply"
        case UnicodeError():
            return "is not JSON: it is not text in UTF-8"
        case _:
            return "is not JSON as it can be taken: a number has too many digits"


def _methods(request: Request) -> list[str]:
    """Return the methods that an address takes, of all its routes."""
    here = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for each in here for method in getattr(each, "methods", None) or ()})


async def _answer_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()[:_MAX_ERRORS]  # there may be one for each of a hundred thousand fields
    errors = [{"field": _place(each), "reason": _told(_reason(each))} for each in wrong]
    first = errors[0] if errors else {"field": "request", "reason": "is not valid"}
    detail = f"{first['field']}: {first['reason']}"
    hint = _JSON_ONLY if first["field"] == "body" and not _says_json(request) else ""
    return Problem(400, detail, kind="invalid", errors=errors, hint=hint).response(request_id_of(request))


def _place(wrong: Mapping[str, Any]) -> str:
    """Name a field as its caller knows it: without where it was found, but for the body as a whole."""
    names = [str(each)[:50] for each in wrong["loc"]]
    return names[0] if wrong["type"] == "json_invalid" else ".".join(names[1:]) or names[0]


def _reason(wrong: Mapping[str, Any]) -> str:
    """Return the fault in words that fit the field: a text has characters where pydantic speaks of items."""
    said = _IN_WORDS.get(wrong["type"], str(wrong["msg"]).removeprefix("Value error, "))
    if wrong["type"] == "string_pattern_mismatch":
        names = [each for each in wrong["loc"] if each in _WRITTEN]
        said = f"must be {_WRITTEN[names[-1]]}" if names else said
    if wrong["type"] == "json_invalid":
        why, at = wrong.get("ctx", {}).get("error", said), wrong["loc"][-1]
        said = f"is not JSON: {why}" + (f", at character {at}" if isinstance(at, int) else "")
    if wrong["type"] in ("too_short", "too_long") and isinstance(wrong.get("input"), str):
        said = re.sub(r"^Value(.*) items?\b.*", r"String\1 characters", said)
    return _OF_PYDANTIC.sub("must ", said) + _given(wrong)


def _given(wrong: Mapping[str, Any]) -> str:
    """Return the given value, if it is short and the rule is about it."""
    given = wrong.get("input")
    if not wrong["type"].startswith(_SHOWN) or not isinstance(given, (str, int, float)) or len(str(given)) > _MAX_SHOWN:
        return ""
    return f", got {orjson.dumps(given).decode()}"


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _told(text: str) -> str:
    text = scrub(text[:_MAX_SCANNED].encode("utf-8", "replace").decode())
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
