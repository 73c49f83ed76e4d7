-- name: list_audit
-- Lists what operators did, newest first, before a given one if asked.
select a.id, a.at, a.actor, a.face, a.action, a.target, a.outcome, a.result, a.error_message, a.finished_at
  from relevo.audit_log a
 where (%(before)s::bigint is null or a.id < %(before)s)
   and (%(action)s::text is null or a.action = %(action)s)
 order by a.id desc
 limit %(limit)s;

-- name: page_audit
-- Lists what was done that fits, newest first, from a place on, out of so many entries; a row without an id says that none fits.
with piece as materialized (
  select a.id, a.at, a.actor, a.face, a.action, a.target, a.outcome, a.result, a.error_message, a.finished_at
    from relevo.audit_log a
   where a.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by a.id desc
   limit %(look)s
)
select e.looked, e.last_id, f.*, now() as now
  from (select count(*)::int as looked, min(p.id) as last_id from piece p) e
  left join (select p.* from piece p
              where (%(action)s::text is null or p.action = %(action)s) and (%(outcome)s::text is null or p.outcome = %(outcome)s)
                and (%(actor)s::text is null or position(lower(%(actor)s) in lower(p.actor)) > 0)
                and p.at >= coalesce(now() - %(hours)s::int * interval '1 hour', '-infinity')
              order by p.id desc
              limit %(limit)s) f on true
 order by f.id desc;

-- name: begin_audit
-- Writes down that an operator begins to do something, before it is done.
insert into relevo.audit_log (actor, face, action, target) values (%(actor)s, %(face)s, %(action)s, %(target)s) returning id;

-- name: finish_audit
-- Writes down how something that an operator did has ended.
select relevo.finish_audit(%(id)s::bigint, %(outcome)s::text, %(result)s::jsonb, %(error_message)s::text);
