-- needs relevo 0.3.0
-- Lets keys of retired events be a project's own: the index. While it is built nothing is retired, and everybody else goes on.

create unique index if not exists event_keys_key on relevo.event_keys (event_type, event_key, coalesce(project, ''));
