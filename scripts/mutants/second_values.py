"""Mistakes that no test noticed when they were put in: most show with a second owner, project, request or answer."""

from __future__ import annotations

from mutants.mistake import Mistake

_FUNCTIONS = "sql/functions/"
_SETTLE = "sql/queries/settle.sql"

SECOND_VALUES: dict[str, Mistake] = {
    "former-token-disabled": Mistake(
        "a token is disabled only if it is still the one that was asked about",
        _SETTLE,
        "n.installation_id = u.installation_id and n.token_version = u.token_version and n.invalidated_at is null",
        "n.installation_id = u.installation_id and n.invalidated_at is null",
        ("tests/scenarios/phones/test_changed_while_claimed.py", "-k", "asked_about"),
        (
            (
                "= any (array[g.installation_id]) and i.token_version = g.token_version",
                "= any (array[g.installation_id])",
            ),
        ),
    ),
    "cancel-ignored-by-the-journal": Mistake(
        "the journal holds back what was cancelled",
        _FUNCTIONS + "sending/journal_plain_wave.sql",
        "e.is_there is null or e.ended_at is not null or",
        "e.is_there is null or",
        ("tests/delivery/claiming/test_journal.py",),
    ),
    "one-kind-of-hours": Mistake(
        "phones of a slice wait for the end of their own quiet hours",
        _FUNCTIONS + "quiet/quiet_dues.sql",
        "dues := coalesce(dues, array_fill(at, array[cardinality(phones)]));",
        "dues := array_fill(at, array[cardinality(phones)]);",
        ("tests/scenarios/quiet_hours/test_quiet_hours.py",),
    ),
    "second-slice-of-a-batch": Mistake(
        "a later slice of an event finds the batch that an earlier one joined",
        _FUNCTIONS + "batches/join_batches.sql",
        "from asked a where (e).fanout_cursor > 0) a",
        "from asked a where false) a",
        ("tests/delivery/composing/test_batches.py",),
    ),
    "unsent-of-another-request": Mistake(
        "only what that very request left in doubt is opened again",
        _FUNCTIONS + "settle/open_unsent.sql",
        "                             and d.last_attempt_at = u.journalled_at -- by that very request\n",
        "",
        ("tests/delivery/claiming/test_journal_never_begun.py",),
    ),
    "superseded-by-the-next-owners": Mistake(
        "what a phone got for its next owner takes no former owner's place",
        _FUNCTIONS + "queue/is_superseded.sql",
        "(of_inbox is null or d.inbox_id is null or d.inbox_id = of_inbox) and ",
        "",
        ("tests/scenarios/phones/test_owner_changes.py",),
    ),
    "cap-forgets-unknown": Mistake(
        "a push that the phone may have got counts for a cap",
        _FUNCTIONS + "caps/counts_as.sql",
        "'ok', 'unconfirmed', 'unknown'",
        "'ok', 'unconfirmed'",
        ("tests/cycles/fanout/test_caps.py",),
    ),
    "raised-cap-stays-full": Mistake(
        "a cap that is raised has room at once",
        _FUNCTIONS + "client/set_cap.sql",
        "set is_spent = false",
        "set is_spent = u.is_spent",
        ("tests/cycles/fanout/test_caps.py",),
    ),
    "receipt-that-was-not-asked-for": Mistake(
        "what was not asked for goes on waiting for its receipt",
        _FUNCTIONS + "receipts/settle_receipts.sql",
        "m.was_asked_for and at >= m.sent_at",
        "at >= m.sent_at",
        ("tests/cycles/receipt/test_receipts.py",),
    ),
    "follower-of-an-unknown-end": Mistake(
        "whoever may have got the former event is not told again",
        _FUNCTIONS + "fanout/leave_out_repeats.sql",
        "'unconfirmed', 'unknown')",
        "'unconfirmed')",
        ("tests/cycles/fanout/test_fanout.py",),
    ),
    "tap-before-the-late-ticket": Mistake(
        "a phone that got its push by a late ticket may report a tap",
        _FUNCTIONS + "reactions/was_handed_over.sql",
        "  or exists (select from relevo.late_tickets t where t.event_day = d.event_day and t.delivery_id = d.id)\n",
        "",
        ("tests/client/test_opens.py",),
    ),
    "address-for-news-as-a-phone": Mistake(
        "an address for news is no phone of an inbox",
        _FUNCTIONS + "inbox/takes_unscoped.sql",
        "i.project = of_project and not i.for_news)",
        "i.project = of_project)",
        ("tests/client/inboxes/test_equal_names.py",),
    ),
    "handled-in-another-project": Mistake(
        "what is handled in one project goes on in the other",
        "sql/queries/journal.sql",
        "h.owner = i.owner and coalesce(h.project, i.project) = i.project",
        "h.owner = i.owner",
        ("tests/scenarios/phones/test_owner_changes.py",),
    ),
    "audit-entry-ended-twice": Mistake(
        "an entry of the audit log that ended stays as it is",
        _FUNCTIONS + "audit/finish_audit.sql",
        " and a.outcome = 'begun'",
        "",
        ("tests/http/test_ops.py",),
    ),
    "interrupted-action-left-begun": Mistake(
        "an interrupted action ends in the audit log as failed",
        "server/relevo/operators/audit.py",
        "except BaseException as error:",
        "except Exception as error:",
        ("tests/http/test_ops.py",),
    ),
    "acknowledged-backwards": Mistake(
        "an acknowledgement of news never goes back",
        _FUNCTIONS + "client/acknowledge_news.sql",
        " and c.position < upto",
        "",
        ("tests/cycles/news/test_news.py",),
    ),
    "export-of-another-project": Mistake(
        "an export of one project has nothing of another",
        _FUNCTIONS + "client/export_owner.sql",
        "               where c.owner = of_owner and (of_project is null or c.project = of_project) and c.id > past",
        "               where c.owner = of_owner and c.id > past",
        ("tests/http/test_http_projects_apart.py",),
    ),
    "two-zones-in-a-merge": Mistake(
        "a bare day says less of a time on that day, whatever zone told the time",
        "server/relevo/sources/merging.py",
        "before.astimezone(told.tzinfo).date()",
        "before.date()",
        ("tests/sources/test_merging.py",),
    ),
    "refused-key-stays-proven": Mistake(
        "a key that APNs refuses is tried with one message next",
        "server/relevo/providers/apns/provider.py",
        "            self._proven.discard((key, project.secret))",
        "            pass",
        ("tests/providers/test_apns.py",),
    ),
    "one-browser-slows-all": Mistake(
        "several messages to one browser tell nothing of the sender's pace",
        "server/relevo/providers/webpush/provider.py",
        "len({path for path, status in answers if status in _THROTTLED})",
        "len([path for path, status in answers if status in _THROTTLED])",
        ("tests/providers/test_webpush.py",),
    ),
    "lost-claim-blames-the-service": Mistake(
        "a process that stood still blames no push service",
        "server/relevo/delivery/settling/replies.py",
        'case "unclear" if self.context.claim.is_lost:',
        'case "unclear" if False:',
        ("tests/delivery/settling/test_replies.py",),
    ),
    "app-reads-no-events": Mistake(
        "a role that may read a route reads it",
        "server/relevo/http/rules.py",
        '"/v1/events/{event_id}": {"GET": READ},',
        '"/v1/events/{event_id}": {"GET": APP},',
        ("tests/http/test_rules_principles.py",),
    ),
    "project-without-its-lock": Mistake(
        "workers decide about a project one after the other",
        _FUNCTIONS + "rates/lock_project.sql",
        "where p.project = of_project for no key update;",
        "where p.project = of_project;",
        ("tests/delivery/projects/test_projects.py", "tests/scenarios/one_bad_thing/test_busy_rows.py"),
    ),
    "digest-stands-still": Mistake(
        "a digest moves on after each slice of its phones",
        _FUNCTIONS + "digests/close_digest_slice.sql",
        "phone_cursor = case when is_last then 0 else last_seq end,",
        "phone_cursor = s.phone_cursor,",
        ("tests/cycles/digest/test_changes.py", "-k", "left_to_it"),
    ),
}
