"""The verbs for asynchronous connections: every one of `relevo`, to be awaited, in the caller's transaction."""

from __future__ import annotations

from relevo.client import consent, inboxes, news, opens, verbs
from relevo.client.connections import awaited

enqueue = awaited(verbs.enqueue)
enqueue_json = awaited(verbs.enqueue_json)
enqueue_many = awaited(verbs.enqueue_many)
cancel = awaited(verbs.cancel)
complete = awaited(verbs.complete)
delete = awaited(verbs.delete)
get = awaited(verbs.get)
wait = awaited(verbs.wait)
register = awaited(verbs.register)
register_many = awaited(verbs.register_many)
change = awaited(verbs.change)
preview = awaited(verbs.preview)
preview_json = awaited(verbs.preview_json)
explain = awaited(verbs.explain)
list_installations = awaited(verbs.list_installations)
unregister = awaited(verbs.unregister)
forget = awaited(verbs.forget)
set_preference = awaited(verbs.set_preference)
subscribe_news = awaited(news.subscribe_news)
read_news = awaited(news.read_news)
acknowledge_news = awaited(news.acknowledge_news)
inbox = awaited(inboxes.inbox)
inbox_counts = awaited(inboxes.inbox_counts)
mark_inbox = awaited(inboxes.mark_inbox)
mark_inbox_before = awaited(inboxes.mark_inbox_before)
report_opened = awaited(opens.report_opened)
set_category = awaited(consent.set_category)
list_categories = awaited(consent.list_categories)
choose = awaited(consent.choose)
block = awaited(consent.block)
unblock = awaited(consent.unblock)
export_owner = awaited(consent.export_owner)
