"""Warnings in answers: Android phones ring where pushes were set to go silently."""

from __future__ import annotations

from fastapi import Request
from pydantic import BaseModel, Field

from relevo.operators import quiet_channel


class Warned(BaseModel):
    """The warnings of an answer."""

    warnings: list[str] = Field(
        description="One sentence if this lets pushes go silently while `PUSH_QUIET_CHANNEL` is not set where HTTP is "
        "served: such a push makes a sound on Android. Empty otherwise."
    )


def warnings_of(request: Request, *, silently: bool) -> dict[str, list[str]]:
    """Return the warnings of an answer to what lets pushes go silently, or does not."""
    return {"warnings": quiet_channel.warnings_of(request.app.state.relevo.settings, silently=silently)}
