"""The verb of another system that sends while Relevo is in shadow mode: it reports what it sent."""

from __future__ import annotations

from collections.abc import Sequence

from relevo.operators import shadow_report
from relevo.operators.shadow_sends import Send
from relevo.verbs.callers import Caller

MOST_AT_ONCE = 1_000


def report_sends(caller: Caller, sends: Sequence[Send]) -> int:
    """Keep what another system sent, for the shadow report; return how many were new.

    A caller of one project reports for that project.
    """
    own = [each._replace(project=caller.own_project(each.project)) for each in sends]
    with caller.database.transaction() as connection:
        return shadow_report.add(connection, own)
