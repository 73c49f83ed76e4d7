"""Mistakes in functions and statements of the database."""

from __future__ import annotations

from mutants.mistake import Mistake

_OWNERS = ("tests/scenarios/phones/test_owner_changes.py",)
_MODEL = ("tests/delivery/claiming/test_claims_model.py",)
_RUNAWAY = ("tests/cycles/test_runaway_days.py", "-k", "project")
_LEASES = "sql/queries/projects.sql"
_LOOK = "sql/functions/queue/look_up_phones.sql"

IN_SQL: dict[str, Mistake] = {
    "settle-sent-without-lock": Mistake(
        "whoever settles what was sent waits for a reaper that takes the claim back",
        "sql/functions/settle/settle_sent.sql",
        "from relevo.claims c where c.token = claim and not c.in_shadow for no key update;",
        "from relevo.claims c where c.token = claim and not c.in_shadow;",
        ("tests/delivery/claiming/test_claims_concurrency.py", "-k", "waits_for_the_reaper"),
    ),
    "settle-sent-of-others": Mistake(
        "a claim settles what it holds",
        "sql/functions/settle/settle_sent.sql",
        "if held_ids is distinct from sent_ids then",
        "if false then",
        ("tests/delivery/claiming/test_settle_sent.py",),
    ),
    "once-tried-again": Mistake(
        "at most once is not tried again when its answer was not seen",
        "sql/functions/settle/end_claim.sql",
        "when d.is_once then 'unknown'",
        "when false then 'unknown'",
        _MODEL,
    ),
    "poison-tried-again": Mistake(
        "a delivery whose claims lapse again and again ends",
        "sql/functions/settle/end_claim.sql",
        "and d.lapse_count + 1 >= poison_lapses then 'failed'",
        "and false then 'failed'",
        ("tests/delivery/claiming/test_claims_fence.py",),
    ),
    "suspects-together": Mistake(
        "a chunk whose claims lapsed too often is claimed alone",
        "sql/functions/queue/claim_due.sql",
        "    exit when head.lapse_count >= suspect_lapses;\n",
        "",
        _MODEL,
    ),
    "owner-not-compared": Mistake(
        "a push goes to the owner it was made for",
        _LOOK,
        "and relevo.is_for_another(v.audience, u.inbox_id, c.created_at, i.installation_id, i.inbox_id, i.owner_since)",
        "and false",
        _OWNERS,
    ),
    "project-not-compared": Mistake(
        "an event of a project goes to no phone that left the project",
        _LOOK,
        "case when v.project <> i.project then 'project_changed'",
        "case when false then 'project_changed'",
        _OWNERS,
    ),
    "forgotten-owner-without-mark": Mistake(
        "a push of a forgotten owner goes to nobody",
        "sql/functions/reactions/forget_opens.sql",
        "inbox_id = case when d.inbox_id = any (inboxes) then 0 else d.inbox_id end",
        "inbox_id = case when d.inbox_id = any (inboxes) then null else d.inbox_id end",
        _OWNERS,
    ),
    "chunk-without-owners": Mistake(
        "what is left of a chunk keeps its owners",
        "sql/functions/queue/part_of_chunk.sql",
        "case when chunk.inboxes is not null then array_agg(chunk.inboxes[p.place] order by p.n) end",
        "null::bigint[]",
        _OWNERS,
    ),
    "digest-of-another-project": Mistake(
        "a digest tells no event of a project that its phone left",
        "sql/functions/digests/judge_items.sql",
        "when (e.e).project <> (i.i).project then 'project_changed' end",
        "end",
        ("tests/cycles/digest/test_changes.py",),
    ),
    "digest-of-another-owner": Mistake(
        "a digest tells no event of a former owner",
        "sql/functions/digests/judge_items.sql",
        "when u.inbox_id is not null and u.inbox_id is distinct from (i.i).inbox_id then 'owner_changed'",
        "when false then 'owner_changed'",
        ("tests/cycles/digest/test_changes.py",),
    ),
    "cap-zone-of-another-project": Mistake(
        "a cap's day is that of the owner's phones in the same project",
        "sql/functions/caps/cap_zone.sql",
        "where i.owner = of_owner and i.project = of_project and",
        "where i.owner = of_owner and",
        ("tests/cycles/fanout/test_caps.py",),
    ),
    "caps-of-another-project": Mistake(
        "a cap holds in its project",
        "sql/functions/caps/applicable_caps.sql",
        "on c.project = p.project and c.category",
        "on c.category",
        ("tests/cycles/fanout/test_caps.py",),
    ),
    "runaway-of-another-project": Mistake(
        "a loop in one project holds no event of another",
        "sql/functions/events/event_origin.sql",
        "'app' || coalesce(' of ' ||",
        "'app' || coalesce('' || null ||",
        _RUNAWAY,
    ),
    "expired-lease-holds-connections": Mistake(
        "a lease of connections that ran out holds none",
        _LEASES,
        "                and o.leased_until > relevo.now(%(now)s)), 0)) as share\n",
        "                ), 0)) as share\n",
        ("tests/delivery/projects/test_connection_leases.py",),
    ),
    "quiet-hours-ignored": Mistake(
        "quiet hours are kept",
        "sql/functions/quiet/quiet_verdict.sql",
        "where until is not null and rule <> 'ignore'",
        "where false",
        ("tests/scenarios/quiet_hours/test_quiet_hours.py",),
    ),
    "inbox-of-another-project": Mistake(
        "an inbox is that of an owner in one project",
        "sql/functions/inbox/find_inbox.sql",
        "from relevo.inboxes b where b.owner = s.owner and b.project = s.project;",
        "from relevo.inboxes b where b.owner = s.owner order by b.id limit 1;",
        ("tests/scenarios/oracles/test_inboxes.py",),
    ),
    "inbox-of-a-former-phone": Mistake(
        "the next owner of a phone sees no item of the former owner",
        "sql/functions/inbox/is_item_of.sql",
        "coalesce(made_for = inbox_id, false)",
        "true",
        ("tests/scenarios/oracles/test_inboxes.py",),
    ),
}
