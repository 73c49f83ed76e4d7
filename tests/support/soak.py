"""How long a list of cases is: `make soak` runs through whole matrices, `make test` through each distinct thing once."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
WHOLE = os.environ.get("RELEVO_TEST_WHOLE") == "1"


def cases(short: T, *, whole: T) -> T:
    """Return the short list, or the whole one where it is asked for; say beside it by which rule it is shorter."""
    return whole if WHOLE else short
