"""Routes for operators: reading and actions."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import Response

from relevo.app import service
from relevo.core.model import Report
from relevo.http.database_threads import app_of, long_work_of, threads_of
from relevo.http.fields import Exact, Id, Text, given_one_of
from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.problems import invalid, missing
from relevo.operators import actions
from relevo.operators.actions import DeadLetters
from relevo.operators.audit import latest as latest_audit

router = APIRouter(route_class=Guarded, tags=["operators"])
_MISSING = missing("What was named is not there.")

Limit = Annotated[int, Query(ge=1, le=200, description="The maximum number of items.")]
Name = Annotated[str, Path(min_length=1, max_length=200, description="A cycle, or one source of it: ingest:folder.")]


class AuditEntry(BaseModel):
    """One thing an operator did."""

    id: int
    at: str
    actor: str
    face: str
    action: str
    target: dict[str, Any]
    outcome: str = Field(description="begun, ok or failed")
    result: dict[str, Any]
    error_message: str | None
    finished_at: str | None


class AuditPage(BaseModel):
    """Entries, newest first, and where the next page begins."""

    items: list[AuditEntry]
    next: str | None


class Queue(BaseModel):
    """All deliveries of events that are not archived, by kind; the kinds add up to `total`."""

    total: int
    due_now: int
    due_now_is_at_least: bool = Field(description="Whether more is due than was counted.")
    oldest_pending_age_seconds: float | None
    stuck_processing: int = Field(description="In expired claims.")
    pending: int = Field(description="Waiting, retries included, and in no claim.")
    processing: int = Field(description="In live claims.")
    sent: int = Field(description="Sent, confirmed or not.")
    failed: int = Field(description="Dead letters.")
    expired: int
    invalid: int
    skipped: int
    cancelled: int
    unknown: int
    statuses: dict[str, int] = Field(description="By stored status.")


class LastError(BaseModel):
    """The last run that failed within a day."""

    cycle: str
    at: str | None
    message: str | None


class Runtime(BaseModel):
    """Totals of all cycles of the fleet since they first ran."""

    is_running: bool
    ticks_total: int
    processed_total: int
    retried_total: int
    dead_letter_total: int
    recovered_stuck_total: int
    last_error: LastError | None
    totals: dict[str, dict[str, int]]


class ConfigOut(BaseModel):
    """Settings of the process that answers."""

    poll_ms: int
    batch_size: int
    max_attempts: int
    processing_timeout_ms: int
    retry_base_ms: int
    retry_max_ms: int
    retry_jitter_ms: int
    concurrency: int
    rate_per_second: int


class Stats(BaseModel):
    """The fleet in numbers."""

    generated_at: str
    queue: Queue
    runtime: Runtime
    config: ConfigOut


class RunOut(BaseModel):
    """How one run ended."""

    cycle: str
    outcome: str
    run_id: int | None
    counts: dict[str, int]
    reason: str
    error: str
    more: bool


class Summary(BaseModel):
    """How a cycle's runs ended, one per source."""

    cycle: str
    outcome: str = Field(description="The worst of its runs': failed, partial, ok, idle or skipped.")
    counts: dict[str, int]
    duration_ms: int
    runs: list[RunOut]


class RunAnswer(BaseModel):
    """The outcome of a run that a person started."""

    summary: Summary


class PauseIn(Exact):
    """Why a cycle is switched off."""

    reason: Text = Field(min_length=1, max_length=300)


class Paused(BaseModel):
    """Whether a cycle is off, and whether that was changed just now; if it was off before, since when and why."""

    cycle: str
    paused: bool
    changed: bool
    paused_since: str | None = None
    paused_because: str | None = None


class RedriveIn(Exact):
    """Which dead letters: all that is given must hold, and something must be."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["ids"], "properties": {"ids": {"minItems": 1}}},
                *given_one_of("error_code", "project", "event_type"),
                {"required": ["event_id"], "properties": {"event_id": {"type": "integer"}}},
            ]
        }
    )

    ids: list[Id] = Field(default_factory=list, max_length=10_000)
    error_code: Text | None = Field(None, min_length=1, max_length=100)
    event_id: Id | None = None
    project: Text | None = Field(None, min_length=1, max_length=250)
    event_type: Text | None = Field(None, min_length=1, max_length=100)
    dry_run: StrictBool = False


class RedriveOut(BaseModel):
    """Dead letters by error code, at most 10,000, and how many of them will be sent again."""

    found: list[dict[str, Any]]
    redriven: int


class ReleaseIn(Exact):
    """A project whose breaker and brakes are lifted, or an event type that the runaway brake holds."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["project"],
                    "properties": {
                        "project": {"type": "string"},
                        "event_type": {"type": "null"},
                        "origin": {"type": "null"},
                        "drop": {"const": False},
                    },
                },
                {
                    "required": ["event_type"],
                    "properties": {"event_type": {"type": "string"}, "project": {"type": "null"}},
                },
            ]
        }
    )

    project: Text | None = Field(None, min_length=1, max_length=250)
    event_type: Text | None = Field(None, min_length=1, max_length=100)
    origin: Text | None = Field(None, min_length=1, max_length=200)
    drop: StrictBool = False


class ReleaseOut(BaseModel):
    """Whether anything was held, and what: of a project, or of an event type."""

    released: bool
    events: int = Field(description="With event_type: how many were held.")
    project: str | None = None
    what: list[str] = Field(
        default_factory=list, description="With project: breaker, brake (on disabling tokens) and rate, as they held."
    )
    event_type: str | None = None
    origins: list[str] = Field(default_factory=list, description="With event_type: where they came from, 20 at most.")
    first_ids: list[int] = Field(default_factory=list, description="With event_type: the first 20 of these events.")
    dropped: bool = Field(False, description="With event_type: whether they were ended instead of sent.")


@router.get("/v1/ops/stats", responses={200: {"model": Stats}})
async def get_stats(request: Request) -> Response:
    """Return numbers on the queue and the runtime of the whole fleet, without counting deliveries.

    Relevo computes them at most once a second; `generated_at` is that time.
    """
    return Json(await request.app.state.stats.get())


@router.get("/v1/ops/audit", responses={200: {"model": AuditPage}})
async def list_audit(
    request: Request,
    limit: Limit = 50,
    cursor: Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before.")] = None,
    action: Annotated[Text | None, Query(max_length=100, description="Only this action.")] = None,
) -> Response:
    """Return the actions of operators, newest first: person, time, action and result."""
    rows = await threads_of(request).run(latest_audit, before=cursor, action=action, limit=limit)
    return Json({"items": rows, "next": str(rows[-1]["id"]) if len(rows) == limit else None})


@router.post("/v1/ops/cycles/{name}/run", responses={200: {"model": RunAnswer}, **_MISSING})
async def run_cycle(request: Request, name: Name) -> Response:
    """Run a cycle once, under the lock of its schedule and within a tick's budget, and return the outcome."""
    began = time.monotonic()
    reports = await long_work_of(request).run(lambda _database: service.run_beside(app_of(request), name))
    return Json({"summary": _summary(name, reports, round((time.monotonic() - began) * 1000))})


@router.post("/v1/ops/cycles/{name}/pause", responses={200: {"model": Paused}, **_MISSING})
async def pause_cycle(request: Request, name: Name, why: PauseIn) -> Response:
    """Switch a cycle off in the whole fleet. Active runs finish. A cycle that is off already keeps its reason."""
    cycle, source = app_of(request).switch_of(name)
    before = await threads_of(request).run(actions.pause, cycle, why.reason, source=source)
    return Json({"cycle": name, "paused": True, "changed": not before, **before})


@router.post("/v1/ops/cycles/{name}/resume", responses={200: {"model": Paused}, **_MISSING})
async def resume_cycle(request: Request, name: Name) -> Response:
    """Switch a paused cycle on again."""
    cycle, source = app_of(request).switch_of(name)
    changed = await threads_of(request).run(actions.resume, cycle, source=source)
    return Json({"cycle": name, "paused": False, "changed": changed})


@router.post("/v1/ops/redrive", responses={200: {"model": RedriveOut}})
async def redrive_deliveries(request: Request, which: RedriveIn) -> Response:
    """Send dead letters again, or with `dry_run` only return which. Those past their deadline stay."""
    meant = DeadLetters(tuple(which.ids), which.error_code, which.event_id, which.project, which.event_type)
    found = await threads_of(request).run(actions.dead_letters, meant, everything=which.dry_run)
    redriven = 0
    if found and not which.dry_run:
        redriven = await long_work_of(request).run(actions.redrive, meant)
    return Json({"found": found, "redriven": redriven})


@router.post("/v1/ops/release", responses={200: {"model": ReleaseOut}, **_MISSING})
async def release_brake(request: Request, what: ReleaseIn) -> Response:
    """Release a stopped project, or the held events of a type: Relevo sends them, or ends them with `drop`."""
    if (what.project is None) == (what.event_type is None):
        raise invalid("project", "either project or event_type must be given")
    if what.project is not None:
        if what.drop or what.origin is not None:
            raise invalid("drop" if what.drop else "origin", "goes with event_type")
        held = await threads_of(request).run(actions.release_project, what.project)
        return Json({"released": bool(held), "events": 0, "project": what.project, "what": held})
    assert what.event_type is not None
    done = await long_work_of(request).run(actions.release_events, what.event_type, what.origin, drop=what.drop)
    return Json({"released": done["events"] > 0, "event_type": what.event_type, **done, "dropped": what.drop})


_WORST = ("failed", "partial", "ok", "idle", "skipped")


def _summary(name: str, reports: list[Report], duration_ms: int) -> dict[str, Any]:
    outcomes = {report.outcome for report in reports}
    counts: dict[str, int] = {}
    for report in reports:
        counts |= {each: counts.get(each, 0) + count for each, count in report.counts.items()}
    runs = [{field: getattr(report, field) for field in RunOut.model_fields} for report in reports]
    outcome = next((each for each in _WORST if each in outcomes), "skipped")
    return {"cycle": name, "outcome": outcome, "counts": counts, "duration_ms": duration_ms, "runs": runs}
