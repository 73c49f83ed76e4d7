-- name: tell_trouble
-- Tells operators of an error that was met on one thing, which is left alone for so long while the rest goes on.
insert into relevo.troubles as t (kind, name, error, retry_at)
values (%(kind)s, %(name)s, %(error)s, now() + %(pause_ms)s::bigint * interval '1 millisecond')
on conflict (kind, name) do update
   set error = excluded.error, retry_at = excluded.retry_at, last_at = now(), failures = t.failures + 1;

-- name: forget_trouble
-- Forgets the error that was met on a thing, with which all went well since.
delete from relevo.troubles t where t.kind = %(kind)s and t.name = %(name)s;

-- name: prune_troubles
-- Deletes a batch of errors that nobody reported for a day after their retry was due. For cleanup's own parts the day starts when cleanup began
-- this time.
delete from relevo.troubles t
 where (t.kind, t.name) in (select o.kind, o.name from relevo.troubles o
                             where o.retry_at < relevo.now(%(now)s) - interval '1 day'
                                or o.kind = 'part' and starts_with(o.name, 'cleanup ') and o.last_at < %(since)s
                             limit %(limit)s);
