-- name: summarise_owner
-- Reads how many phones an owner has, how much was said to them by name, what they chose, and whether they are blocked.
select (select count(*) from relevo.device_installations i where i.owner = %(owner)s)::int as installations,
       (select count(*) from relevo.device_installations i where i.owner = %(owner)s and relevo.may_receive(i))::int as receiving,
       (select count(*) from relevo.event_owners o where o.owner = %(owner)s)::int as events,
       (select coalesce(jsonb_object_agg(r.project, r.choices), '{}') from relevo.owner_rules r
         where r.owner = %(owner)s and r.choices <> '{}') as choices,
       (select coalesce(jsonb_agg(jsonb_build_object('project', nullif(r.project, ''), 'since', r.blocked_at, 'reason', r.block_reason) order by r.project), '[]')
          from relevo.owner_rules r where r.owner = %(owner)s and r.blocked_at is not null) as blocks;

-- name: are_owners_shared
-- Reads whether equal owner names of several projects are one person.
select exists (select from relevo.owner_sharing s where s.shared) as shared;

-- name: share_owners
-- Sets whether equal owner names of several projects are one person, as an operator says; returns whether that is a change.
with before as materialized (
  select s.shared from relevo.owner_sharing s
)
insert into relevo.owner_sharing as s (shared, said_at) values (%(shared)s, now())
on conflict (one) do update set shared = excluded.shared, said_at = now(),
                                changed_at = case when s.shared <> excluded.shared then now() else s.changed_at end
returning s.shared is distinct from (select b.shared from before b);
