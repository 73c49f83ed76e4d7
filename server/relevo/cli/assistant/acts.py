"""The acts of an assistant with an operator's token; a person confirms each in the program that runs the assistant."""

# Annotations are evaluated here: the questions are functions inside functions, which no name outside finds.
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from relevo.cli.common import cycle_facts
from relevo.core.errors import NotFoundError, RelevoError, UsageError
from relevo.core.phrases import clipped
from relevo.database.pool import Database
from relevo.operators import actions, events, runs
from relevo.operators.actions import DeadLetters
from relevo.verbs import events as verbs
from relevo.verbs.callers import Caller

EventId = Annotated[int, Field(ge=1, lt=2**63, description="The event's number.")]
Reason = Annotated[str, Field(min_length=1, max_length=300, description="The reason, for the records.")]
CycleName = Annotated[str, Field(min_length=1, max_length=50, description="A cycle, such as dispatch.")]
Code = Annotated[str, Field(min_length=1, max_length=100, description="The error code of the dead letters.")]
Project = Annotated[str, Field(min_length=1, max_length=250, description="The project, as status names it.")]


class Answer(BaseModel):
    """The person's answer."""

    confirm: bool = Field(description="Do it")


Confirmed = ElicitationResult[Answer]


@dataclass(frozen=True)
class Acts:
    """The tools that change something."""

    database: Database
    caller: Callable[[], Caller]
    """Returns who calls; raises UsageError once the token is revoked."""

    def tools(self) -> list[Callable[..., Any]]:
        """Return the tools. Each asks the person first, with what it would do."""
        return [self._cancelling(), *self._switching(), self._redriving(), self._releasing()]

    def _cancelling(self) -> Callable[..., Any]:
        def ask(event_id: EventId, ctx: Context) -> Elicit[Answer]:
            with self._acting() as caller:
                found = verbs.find(caller, event_id)
                late = events.too_late_to_stop(self.database, event_id)
                return _question(
                    ctx,
                    f"Cancel event {event_id} ({clipped(found.raw.get('type', ''), 100)})? "
                    f"{late['sent'] + late['claimed']:,} of its pushes were sent or are being sent, and stay.",
                )

        def cancel_event(event_id: EventId, reason: Reason, confirmed: Annotated[Confirmed, Resolve(ask)]) -> Any:
            """Cancel an event: its pushes that were not sent yet are withdrawn."""
            with self._confirmed(confirmed) as caller:
                done = verbs.cancel(caller, event_id, reason)
                return {"cancelled": done.cancelled, "withdrawn": done.withdrawn, "progress": done.found.progress}

        return cancel_event

    def _switching(self) -> list[Callable[..., Any]]:
        def ask_pause(cycle: CycleName, ctx: Context) -> Elicit[Answer]:
            with self._acting():
                self._known(cycle)
                return _question(ctx, f"Pause {cycle} in the whole fleet, until somebody resumes it?")

        def pause_cycle(cycle: CycleName, reason: Reason, confirmed: Annotated[Confirmed, Resolve(ask_pause)]) -> Any:
            """Pause a cycle in the whole fleet; runs under way come to their end."""
            with self._confirmed(confirmed):
                return {"paused": cycle, **actions.pause(self.database, cycle, reason)}

        def ask_resume(cycle: CycleName, ctx: Context) -> Elicit[Answer]:
            with self._acting():
                self._known(cycle)
                return _question(ctx, f"Resume {cycle} in the whole fleet?")

        def resume_cycle(cycle: CycleName, confirmed: Annotated[Confirmed, Resolve(ask_resume)]) -> Any:
            """Resume a paused cycle."""
            with self._confirmed(confirmed):
                return {"resumed": cycle, "was_paused": actions.resume(self.database, cycle)}

        return [pause_cycle, resume_cycle]

    def _redriving(self) -> Callable[..., Any]:
        def ask(error_code: Code, ctx: Context) -> Elicit[Answer]:
            with self._acting():
                found = actions.dead_letters(self.database, DeadLetters(error_code=error_code))
                many = sum(int(row["deliveries"]) for row in found)
                return _question(
                    ctx, f"Send {many:,} deliveries again that failed for good with the code {error_code}?"
                )

        def redrive(error_code: Code, confirmed: Annotated[Confirmed, Resolve(ask)]) -> Any:
            """Send the deliveries again that failed for good with this error code."""
            with self._confirmed(confirmed):
                return {"redriven": actions.redrive(self.database, DeadLetters(error_code=error_code))}

        return redrive

    def _releasing(self) -> Callable[..., Any]:
        def ask(project: Project, ctx: Context) -> Elicit[Answer]:
            with self._acting():
                return _question(ctx, f"Release project {clipped(project, 250)}: probe its breaker, lift its brakes?")

        def release_project(project: Project, confirmed: Annotated[Confirmed, Resolve(ask)]) -> Any:
            """Release a stopped project: probe its breaker, and lift its brakes."""
            with self._confirmed(confirmed):
                return {"released": actions.release_project(self.database, project)}

        return release_project

    def _known(self, cycle: str) -> None:
        known = runs.known_cycles(self.database, cycle_facts())
        if cycle not in known:
            raise NotFoundError(f"There is no cycle {cycle}.", hint=f"Known: {', '.join(known)}.")

    @contextmanager
    def _acting(self) -> Iterator[Caller]:
        """Find who calls, as an operator; errors become sentences that the assistant can read."""
        try:
            caller = self.caller()
            if not caller.is_operator:
                raise UsageError("This takes an operator's token.")
            yield caller
        except RelevoError as error:
            raise ToolError(str(error)) from error

    @contextmanager
    def _confirmed(self, answer: Any) -> Iterator[Caller]:
        """Go on if the person said yes."""
        if not isinstance(answer, AcceptedElicitation) or not answer.data.confirm:
            raise ToolError("The person did not confirm it: nothing was changed.")
        with self._acting() as caller:
            yield caller


def _question(ctx: Context, text: str) -> Elicit[Answer]:
    """Return what the person is asked; raises ToolError where the program cannot ask."""
    able = ctx.client_capabilities
    if able is None or able.elicitation is None:
        raise ToolError("This program cannot ask its person to confirm: use the command line or the dashboard.")
    return Elicit(text, Answer)
