"""Shared keys of PUSH_PROJECTS_FILE for a project with any push service; each push service has its own beside them."""

from __future__ import annotations

import json
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_SECRET_BYTES = 65_536

Word = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,4096}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SECRET_BYTES)]


class Entry(BaseModel):
    """The file's entry of one project and push service."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)
    provider: ClassVar[str]
    credential_field: ClassVar[str]
    """The key that the secret stands in; where it may be in a file, that one's key is the same with `_file`."""
    one_of: ClassVar[tuple[str, ...]] = ()
    """The keys of which exactly one must be given."""

    rate_per_second: int | None = Field(None, ge=0, le=1_000_000)
    connections: int | None = Field(None, ge=1, le=50)
    chunk_size: int | None = Field(None, ge=1, le=100)

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        if self.one_of and sum(bool(getattr(self, name)) for name in self.one_of) != 1:
            raise ValueError(f"needs one of {', '.join(self.one_of)}")
        return self

    def secret_file(self) -> str | None:
        """Return the file that the secret is in, if it is not written here."""
        return getattr(self, f"{self.credential_field}_file", None)

    def secret(self) -> str:
        """Return the secret as it is written here, an object as JSON; nothing if there is none."""
        found = getattr(self, self.credential_field) or ""
        return json.dumps(found) if isinstance(found, dict) else str(found)
