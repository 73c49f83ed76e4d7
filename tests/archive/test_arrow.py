"""How Arrow waits for PostgreSQL: a connection that was cut is a server that is gone, and any other error is its own."""

from __future__ import annotations

import pytest

from relevo.archive.arrow import _Watchdog
from relevo.core.errors import DatabaseUnavailableError


@pytest.mark.parametrize(("cut", "told"), [(False, ZeroDivisionError), (True, DatabaseUnavailableError)])
def test_only_what_was_cut_counts_as_gone(cut: bool, told: type[Exception]) -> None:
    """An error while the server answers stays what it is; behind a cut it is a database that can be waited for."""
    watchdog = _Watchdog(mark=1, patience_s=60)
    watchdog._cut = cut
    with pytest.raises(told), watchdog.waiting():
        raise ZeroDivisionError
