"""The door for asynchronous connections: every verb of `relevo`, to be awaited, in the caller's transaction."""

from __future__ import annotations

from relevo import door, news
from relevo.connections import awaited

enqueue = awaited(door.enqueue)
enqueue_json = awaited(door.enqueue_json)
enqueue_many = awaited(door.enqueue_many)
cancel = awaited(door.cancel)
complete = awaited(door.complete)
delete = awaited(door.delete)
get = awaited(door.get)
wait = awaited(door.wait)
register = awaited(door.register)
register_many = awaited(door.register_many)
change = awaited(door.change)
preview = awaited(door.preview)
preview_json = awaited(door.preview_json)
explain = awaited(door.explain)
list_installations = awaited(door.list_installations)
unregister = awaited(door.unregister)
forget = awaited(door.forget)
set_preference = awaited(door.set_preference)
subscribe_news = awaited(news.subscribe_news)
read_news = awaited(news.read_news)
acknowledge_news = awaited(news.acknowledge_news)
