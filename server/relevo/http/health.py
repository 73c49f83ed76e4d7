"""What monitors ask: is this process alive, can it do its work, and what can be measured of it?

Anybody may ask for its health, so that names, addresses and identifiers stay in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response

from relevo.config import Settings
from relevo.core.errors import RelevoError
from relevo.core.logs import normalise_error
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.problems import Problem
from relevo.operators import fleet
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.wakeups import Listener

router = APIRouter(route_class=Guarded, tags=["health"])
metrics_router = APIRouter(route_class=Guarded, tags=["operators"])
"""/metrics, on the API's own port with a viewer's token; without one it is on METRICS_PORT."""
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
OK = "ok"
_NO_DATABASE = "cannot be used right now: `relevo doctor` and the log say why"
_UNKNOWN = "cannot be told: `relevo doctor` and the log say why"
_NOT_AT_HOME = (
    "this database belongs elsewhere, or is a copy: `relevo doctor` says why; `relevo adopt` makes it this one's"
)
_log = structlog.get_logger("relevo.http")


class Live(BaseModel):
    """This process answers."""

    status: str
    version: str


class Ready(BaseModel):
    """The state of each part."""

    status: str
    checks: dict[str, str]


@router.get("/health/live", responses={200: {"model": Live}})
async def check_live(request: Request) -> Response:
    """Return 200 while this process is alive, without reading the database."""
    return Json({"status": "alive", "version": request.app.version})


@router.get("/health/ready", responses={200: {"model": Ready}, 503: {"model": Ready, "description": "Not ready."}})
async def check_ready(request: Request) -> Response:
    """Return whether database, migrations, scheduler and listener work; 503 names the part that does not.

    Relevo checks at most once a second, over a connection of its own, so it is ready while requests use all others.
    """
    try:
        found = await request.app.state.checks.get()
    except Problem as problem:
        found = {"database": problem.detail}
    good = is_ready(found)
    answer = {"status": "ready" if good else "not ready", "checks": found}
    return Json(answer, 200 if good else 503, {} if good else {"Retry-After": "2"})


@dataclass
class Readiness:
    """The checks of readiness."""

    settings: Settings
    scheduled: bool
    """Whether this process runs cycles itself, rather than `relevo serve` beside others that do."""
    scheduler: Scheduler | None = None
    listener: Listener | None = None
    _told: str = ""

    def look(self, database: Database) -> dict[str, str]:
        """Return what was found of each part: `ok`, `degraded: …` or what is wrong with it."""
        found = {"database": _NO_DATABASE, "migrations": "unknown"}
        try:
            database.ping()
            found = {"database": OK, "migrations": _UNKNOWN}
            missing = migrate.missing(database)
        except RelevoError as error:
            self._tell(normalise_error(error, 200))
            return {**found, **self._process()}
        if missing:
            return {"database": OK, "migrations": f"{len(missing)} to run: `relevo migrate`", **self._process()}
        trouble = fleet.standing(database, self.settings).trouble()
        self._tell(trouble)
        at_home = _NOT_AT_HOME if trouble else OK
        fleet_runs = OK if fleet.has_scheduler(database) else "no worker is alive: start `relevo run`"
        own = self._process() if self.scheduled else {"scheduler": fleet_runs}
        return {"database": OK, "migrations": OK, "instance": at_home, **own}

    def _tell(self, problem: str) -> None:
        """Write a fault to the log, once."""
        if problem and problem != self._told:
            _log.warning("not_ready", problem=problem)
        self._told = problem

    def _process(self) -> dict[str, str]:
        if not self.scheduled:
            return {}
        running = self.scheduler is not None and self.scheduler.is_running
        hearing = self.listener.hearing if self.listener is not None else None
        heard = {"listening": OK, "polling": "degraded: wake-ups are not heard, polling goes on"}
        return {
            "scheduler": OK if running else "not started yet, or stopping",
            "listener": heard.get(hearing or "", "not started yet, or stopped"),
        }


def is_ready(found: Mapping[str, str]) -> bool:
    """Return whether nothing is wrong; what is degraded still works."""
    return all(said == OK or said.startswith("degraded") for said in found.values())


async def _expose(app: FastAPI) -> Response:
    """Write all metrics of this process, and of the fleet, as Prometheus reads them."""
    written = await app.state.threads.run(lambda _database: app.state.relevo.metrics.render())
    return Response(written, media_type=_METRICS)


@metrics_router.get(
    "/metrics", response_class=PlainTextResponse, responses={200: {"description": "Prometheus' text format."}}
)
async def get_metrics(request: Request) -> Response:
    """Return all metrics in Prometheus's text format."""
    return await _expose(request.app)


def own_port(api: FastAPI) -> FastAPI:
    """Make the app that serves /metrics alone, on a port of its own, where no token is asked for."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/metrics")
    async def _metrics() -> Response:
        return await _expose(api)

    return app
