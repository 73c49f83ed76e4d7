"""One log line per thing that happened, in JSON or for people, with nothing secret in it."""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TextIO

from relevo.core.errors import RelevoError

if TYPE_CHECKING:  # loading it takes longer than a command that only looks, and has nothing to log
    from structlog.typing import EventDict, Processor, WrappedLogger

MAX_TEXT = 2_000
MAX_DEPTH = 8
# Beyond this nothing is even looked at: what is kept is far shorter.
_MAX_SCANNED = 10_000
_MAX_NAME = 200
_QUIET = ("apscheduler", "psycopg", "boto3", "botocore", "urllib3")  # what they warn of, our own lines tell once

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRET_NAME = (
    r"[\w.-]*(?:password|passwd|secret|token|ticket|signature|credential|(?:api|access|private|auth)[_-]?key)"  # noqa: S105
)
_PUSH_TOKEN_NEXT = r"(?!\\*[\"']?Expo(?:nent)?PushToken)"  # noqa: S105 these are shortened, not hidden
# In an address a key or a signature by any name is a secret; elsewhere a key may be an event's.
_IN_QUERY = re.compile(
    rf"([?&](?:{_SECRET_NAME}|[\w.-]*key|[\w.-]*auth|sig|pass|pwd)={_PUSH_TOKEN_NEXT})[^&\s]+", re.IGNORECASE
)
_WORD = re.compile(r"\S+")
_PASSWORD_BEGINS = re.compile(r"://[^\s:/?#]*:")
# A web address may hold its secret in place of the user; in that of a database it says who could not connect.
_USER_IN_URL = re.compile(r"(?<!postgres)(?<!postgresql)(://)[^\s/?#@]+@", re.IGNORECASE)
_IN_PAIR = re.compile(
    rf"((?<![?&\w.-]){_SECRET_NAME}(?:\s*=\s*|\\*[\"']\s*:\s*){_PUSH_TOKEN_NEXT})"
    r"(?:([\"'])(?:(?!\2)[^\\]|\\.)*\2?|(?:\\.|\S)+)",
    re.IGNORECASE | re.DOTALL,
)
_IN_HEADER = re.compile(
    r"((?:authorization|(?<![\w-])x-[\w-]*(?:key|token|secret|signature))\\*[\"']?\s*(?::|(?<=authorization)=)\s*\\*[\"']?"
    r"(?:(?:basic|bearer|digest|negotiate|token|aws4-hmac-sha256)\s+)?)[^\s\"',;]+",
    re.IGNORECASE,
)
_WEBHOOK_SECRET = re.compile(r"\bwhsec_[\w+/=-]+")
_API_TOKEN = re.compile(r"\brelevo_[0-9a-f]{12}_[\w-]+")
_BEARER = re.compile(r"\b(bearer\s+)\S+", re.IGNORECASE)
_PUSH_TOKEN = re.compile(
    r"(Expo(?:nent)?PushToken)(?:\[|%5B)(?!\.\.\.\])([^\]\s%…]{0,4})[^\]\s%]*(?:\]|%5D)?", re.IGNORECASE
)
_FCM_TOKEN = re.compile(r"(?<![\w-])([\w-]{4})[\w-]*:APA91b[\w-]*")
_APNS_PATH = re.compile(r"(/3/device/[0-9a-f]{4})[0-9a-f]+", re.IGNORECASE)
# Address and keys of a browser's subscription are enough to push to it: the log has only the host of the address.
_SUBSCRIPTION = re.compile(r"(endpoint\\*[\"']?\s*[:=]\s*\\*[\"']?https?://[^\s/\"'\\]+)/[^\s\"'\\]*", re.IGNORECASE)
_SUBSCRIPTION_KEY = re.compile(r"((?:p256dh|auth)\\*[\"']\s*:\s*\\*[\"']?)[\w+/=-]+", re.IGNORECASE)
_PUSH_ADDRESS = re.compile(
    r"(https://(?:[\w.-]+\.)?(?:fcm\.googleapis\.com/(?:fcm/send|wp)|push\.services\.mozilla\.com|push\.apple\.com|"
    r"notify\.windows\.com))/[^\s\"'\\]*",
    re.IGNORECASE,
)

_SECRET_KEY = re.compile(r"password|passwd|secret|access_?token|authorization|signature|api[_-]?key", re.IGNORECASE)
# A token may be a credential, a count, or a phone's, which is shortened.
_TOKEN_KEY = re.compile(r"(?:^|[_.-])token$", re.IGNORECASE)
# A ticket may be a credential (ChileCompra's) or a count; ids of Expo's tickets are neither.
_TICKET_KEY = re.compile(r"ticket(?!s?_ids?\b)", re.IGNORECASE)


def scrub(text: str) -> str:
    """Return the text without passwords, keys, signatures, tokens, whole push tokens and control characters.

    It is cut before any pattern sees it. Every pattern is linear: tests/house/test_patterns.py holds that.
    """
    text = _CONTROL.sub(" ", _shorten(text, _MAX_SCANNED))
    text = _IN_QUERY.sub(r"\1***", text)
    text = _WORD.sub(_hide_password, text) if "@" in text else text
    text = _USER_IN_URL.sub(r"\1***@", text)
    text = _IN_PAIR.sub(lambda pair: f"{pair[1]}{pair[2] or ''}***{pair[2] or ''}", text)
    text = _IN_HEADER.sub(r"\1***", text)
    text = _BEARER.sub(r"\1***", text)
    text = _WEBHOOK_SECRET.sub("whsec_***", text)
    text = _API_TOKEN.sub(lambda token: f"{token[0][:19]}_***", text)
    return _shorten_push_tokens(text)


def _shorten_push_tokens(text: str) -> str:
    """Leave of a phone's token a few letters, and of a browser's the host."""
    text = _PUSH_TOKEN.sub(r"\1[\2…]", text)
    text = _FCM_TOKEN.sub(r"\1…", text)
    text = _APNS_PATH.sub(r"\1…", text)
    if "://" in text:
        text = _SUBSCRIPTION.sub(r"\1/…", text)
        text = _PUSH_ADDRESS.sub(r"\1/…", text)
    return _SUBSCRIPTION_KEY.sub(r"\1***", text)


def _hide_password(word: re.Match[str]) -> str:
    """Hide an address's password, up to the last @ of the word: a password may hold one, and hiding more is safe."""
    text = word[0]
    end = text.rfind("@")
    begins = _PASSWORD_BEGINS.search(text, 0, end) if end > 0 else None
    return f"{text[: begins.end()]}***{text[end:]}" if begins else text


def normalise_error(error: BaseException, limit: int = 500) -> str:
    """Return the error in one scrubbed line of at most `limit` characters."""
    said = " ".join(str(error).encode("utf-8", "replace").decode()[:_MAX_SCANNED].split())
    if isinstance(error, RelevoError):
        return _shorten(scrub(said), limit)
    name = type(error).__name__
    return _shorten(f"{name}: {scrub(said)}" if said else name, limit)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave only plain, bounded values without secrets in the event (a structlog processor)."""
    return {str(key): _clean_entry(str(key), value, MAX_DEPTH) for key, value in event.items()}


Format = Literal["console", "json"]


def configure(level: str, fmt: Format, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's lines through one scrubbing handler."""
    import structlog  # noqa: PLC0415

    out = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    gathering: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*gathering, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    renderer: Processor = structlog.processors.JSONRenderer()
    if fmt == "console":
        traceback = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="ts", exception_formatter=traceback)
    handler = _Handler(out)
    handler.setLevel(number)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *gathering],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact, _lead, renderer],
        )
    )
    _install(handler, number)


def configure_later(level: str, fmt: Format) -> None:
    """Do the same when the first line is to be logged, if there ever is one: for commands that only look.

    To load structlog takes 38 ms of the 600 that `relevo status` takes.
    """
    _install(_Later(level, fmt), logging.getLevelNamesMapping()[level.upper()])


def is_configured() -> bool:
    """Return whether somebody has configured structlog already: us, or the program we are part of."""
    import structlog  # noqa: PLC0415

    return structlog.is_configured()


def get_logger(name: str) -> Any:
    """Return structlog's logger of that name, which is loaded when it has something to say."""
    return _Logger(name)


class _Logger:
    """Stands for a logger of structlog."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog  # noqa: PLC0415

        for each in logging.getLogger().handlers:
            if isinstance(each, _Later):
                each.begin()
        return getattr(structlog.get_logger(self._name), method)


class _Handler(logging.StreamHandler[TextIO]):
    """Our own handler, told apart from those of an embedding program or a test."""

    lost = 0
    """How many lines this process could not write: its disk is full, or nobody reads its pipe any more."""
    trouble: str | None = None
    """Why the last line could not be written; None if it was."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and note whether that worked."""
        lost = _Handler.lost
        super().emit(record)
        if _Handler.lost == lost:
            _Handler.trouble = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 the standard library's name
        """Count a line that is lost; whatever logs it goes on."""
        _Handler.lost += 1
        why = sys.exc_info()[1]
        _Handler.trouble = (why.strerror if isinstance(why, OSError) else None) or type(why).__name__
        super().handleError(record)


def lines_lost() -> int:
    """Return how many lines of its log this process could not write."""
    return _Handler.lost


def log_trouble() -> str | None:
    """Return why the last line of this process's log could not be written; None if it was."""
    return _Handler.trouble


class _Later(logging.Handler):
    """Holds the place of our handler until there is a line to log."""

    def __init__(self, level: str, fmt: Format) -> None:
        super().__init__()
        self._chosen = level, fmt

    def begin(self) -> None:
        """Give the place to the handler it holds it for."""
        configure(*self._chosen)

    def emit(self, record: logging.LogRecord) -> None:
        """Log a line, the first one."""
        self.begin()
        for each in logging.getLogger().handlers:
            if isinstance(each, _Handler) and record.levelno >= each.level:
                each.handle(record)


def _install(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _Handler | _Later)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)


def _lead(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {key: event[key] for key in ("ts", "level", "event") if key in event}
    return {**first, **event}


def _clean_entry(key: str, value: Any, depth: int) -> Any:
    if key in {"exception", "stack"}:
        return _keep_ends(scrub(_keep_ends(str(value), _MAX_SCANNED)), MAX_TEXT)
    if _is_secret(key, value):
        return "***"
    return _clean(value, depth)


def _is_secret(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    if len(key) > _MAX_NAME or _SECRET_KEY.search(key):
        return True
    if isinstance(value, int | float) or (isinstance(value, str) and _PUSH_TOKEN.fullmatch(value)):
        return False
    return bool(_TICKET_KEY.search(key) or _TOKEN_KEY.search(key))


def _clean(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping() | list() | tuple() | set() | frozenset():
            return _clean_all(value, depth - 1) if depth else "…"
        case date():
            return value.isoformat()
        case BaseException():
            return normalise_error(value, MAX_TEXT)
        case _:
            return _shorten(scrub(str(value)[:_MAX_SCANNED]), MAX_TEXT)


def _clean_all(values: Any, depth: int) -> Any:
    if isinstance(values, Mapping):
        named = ((str(key), value) for key, value in values.items())
        return {_shorten(scrub(name), _MAX_NAME): _clean_entry(name, value, depth) for name, value in named}
    return [_clean(value, depth) for value in values]


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _keep_ends(text: str, limit: int) -> str:
    """Shorten a traceback in its middle: its last lines say what happened."""
    if len(text) <= limit:
        return text
    head = limit // 4
    return f"{text[:head]}\n…\n{text[-(limit - head - 3) :]}"
