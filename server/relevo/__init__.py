"""Relevo: push notifications that are never lost, hardly ever doubled, and always explainable.

What apps use: everything here works in the caller's transaction, and nothing commits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relevo.core.version import __version__

if TYPE_CHECKING:
    from relevo import aio
    from relevo.app import Parts
    from relevo.client.attributes import get_attributes, set_attributes
    from relevo.client.consent import (
        Category,
        OwnerPage,
        block,
        choose,
        export_owner,
        list_categories,
        set_category,
        unblock,
    )
    from relevo.client.inboxes import (
        InboxCounts,
        InboxItem,
        InboxPage,
        inbox,
        inbox_counts,
        mark_inbox,
        mark_inbox_before,
    )
    from relevo.client.news import Outcome, acknowledge_news, read_news, subscribe_news
    from relevo.client.opens import report_opened
    from relevo.client.quiet import Cap, QuietHours, get_quiet, list_caps, set_cap, set_quiet
    from relevo.client.signatures import sign_installation, verify_webhook
    from relevo.client.values import (
        REMOVE,
        Enqueued,
        Event,
        EventStatus,
        Everyone,
        Explanation,
        Installation,
        InstallationStatus,
        Matching,
        Owners,
        Phones,
        Preference,
        Preview,
        TenderMatching,
        TenderPreference,
        Topic,
    )
    from relevo.client.verbs import (
        cancel,
        change,
        complete,
        delete,
        enqueue,
        enqueue_json,
        enqueue_many,
        explain,
        forget,
        get,
        list_installations,
        preview,
        preview_json,
        register,
        register_many,
        set_preference,
        unregister,
        wait,
    )
    from relevo.config_file.applying import Applied, Change
    from relevo.config_file.programs import apply_config, plan_config
    from relevo.core.errors import (
        EventConflictError,
        InvalidInputError,
        InvalidSignatureError,
        MissingPartError,
        Reschedule,
    )
    from relevo.core.items import Fetched, Item, News, Reject
    from relevo.core.model import Reply, Step
    from relevo.core.ports import PushContext
    from relevo.runtime.runs import Cycle, Run
    from relevo.runtime.timing import Cron, Every

__all__ = [
    "REMOVE",
    "Applied",
    "Cap",
    "Category",
    "Change",
    "Cron",
    "Cycle",
    "Enqueued",
    "Event",
    "EventConflictError",
    "EventStatus",
    "Every",
    "Everyone",
    "Explanation",
    "Fetched",
    "InboxCounts",
    "InboxItem",
    "InboxPage",
    "Installation",
    "InstallationStatus",
    "InvalidInputError",
    "InvalidSignatureError",
    "Item",
    "Matching",
    "MissingPartError",
    "News",
    "Outcome",
    "OwnerPage",
    "Owners",
    "Parts",
    "Phones",
    "Preference",
    "Preview",
    "PushContext",
    "QuietHours",
    "Reject",
    "Reply",
    "Reschedule",
    "Run",
    "Step",
    "TenderMatching",
    "TenderPreference",
    "Topic",
    "__version__",
    "acknowledge_news",
    "aio",
    "apply_config",
    "block",
    "cancel",
    "change",
    "choose",
    "complete",
    "delete",
    "enqueue",
    "enqueue_json",
    "enqueue_many",
    "explain",
    "export_owner",
    "forget",
    "get",
    "get_attributes",
    "get_quiet",
    "inbox",
    "inbox_counts",
    "list_caps",
    "list_categories",
    "list_installations",
    "mark_inbox",
    "mark_inbox_before",
    "plan_config",
    "preview",
    "preview_json",
    "read_news",
    "register",
    "register_many",
    "report_opened",
    "set_attributes",
    "set_cap",
    "set_category",
    "set_preference",
    "set_quiet",
    "sign_installation",
    "subscribe_news",
    "unblock",
    "unregister",
    "verify_webhook",
    "wait",
]


_NAMES = {
    "relevo.app": "Parts",
    "relevo.client.attributes": "get_attributes set_attributes",
    "relevo.client.consent": "Category OwnerPage block choose export_owner list_categories set_category unblock",
    "relevo.client.inboxes": "InboxCounts InboxItem InboxPage inbox inbox_counts mark_inbox mark_inbox_before",
    "relevo.client.news": "Outcome acknowledge_news read_news subscribe_news",
    "relevo.client.opens": "report_opened",
    "relevo.client.quiet": "Cap QuietHours get_quiet list_caps set_cap set_quiet",
    "relevo.client.signatures": "sign_installation verify_webhook",
    "relevo.client.values": "Enqueued Event EventStatus Everyone Explanation Installation InstallationStatus "
    "Matching Owners Phones Preference Preview REMOVE TenderMatching TenderPreference Topic",
    "relevo.config_file.applying": "Applied Change",
    "relevo.config_file.programs": "apply_config plan_config",
    "relevo.core.errors": "EventConflictError InvalidInputError InvalidSignatureError MissingPartError Reschedule",
    "relevo.core.items": "Fetched Item News Reject",
    "relevo.core.model": "Reply Step",
    "relevo.core.ports": "PushContext",
    "relevo.runtime.runs": "Cycle Run",
    "relevo.runtime.timing": "Cron Every",
}
"""By module what is in it, apart by spaces; all else is a verb."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __dir__() -> list[str]:
    """List the public names, which are imported when they are first used."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load what is used when it is first used: a guardian or a command needs none of it."""
    if name == "aio":
        return import_module("relevo.aio")
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "relevo.client.verbs")), name)
    raise AttributeError(f"module 'relevo' has no attribute {name!r}")
