"""What addresses of lists may carry: filters, so that a list can be shared, and the place of a page of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Text = Annotated[str, Query(max_length=200)]
Hours = Annotated[str, Query(pattern="^[0-9]{0,4}$")]
Place = Annotated[str, Query(pattern="^[0-9.]{0,40}$")]
