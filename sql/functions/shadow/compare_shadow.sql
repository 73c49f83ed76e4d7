-- Compares what shadow mode kept from being sent with what another system sent (shadow_sends), within a time: `same`; `later` or `earlier`, as Relevo would have
-- sent it beyond the tolerance; `missing`, which they sent and Relevo would not have; `extra`, which they did not send; `doubled`, which they sent
-- again. Persons are phones or owners; things are told apart by key or title, and by their type if asked. First what lies within the tolerance is
-- paired, then within the window, each time the first with the first; of an owner's phones one line of theirs is enough.
create or replace function relevo.compare_shadow(of_project text, from_at timestamptz, to_at timestamptz, tolerance interval, reach interval,
                                                 by_phone boolean, by_key boolean, with_type boolean)
  returns table (kind text, sent_at timestamptz, due_at timestamptz, installation_id uuid, owner text, event_type text, event_key text, title text,
                 event_id bigint, delivery_id bigint)
  language plpgsql stable
  set enable_sort = on -- sorting allowed
  set enable_hashjoin = on set enable_nestloop = off -- many with many
as $$
#variable_conflict use_column
begin
  return query
    with theirs as materialized (
      select s.*, s.sent_at as at, case when by_phone then s.installation_id::text else coalesce(s.owner, i.owner, s.installation_id::text) end as subject,
             case when with_type then s.event_type || E'\n' else '' end || case when by_key then s.event_key else lower(btrim(s.title)) end as what
        from relevo.shadow_sends s
        left join relevo.device_installations i on i.installation_id = s.installation_id
       where s.sent_at between from_at - reach and to_at + reach and (of_project is null or coalesce(s.project, i.project, of_project) = of_project)
    ), ours as materialized (
      select * from relevo.kept_pushes(of_project, from_at - reach, to_at + reach, by_phone, by_key, with_type)
    ), near as materialized (
      select * from relevo.pair_sends(array(select row('t', t.id, t.subject, t.what, t.at)::relevo.shadow_side from theirs t
                                            union all select row('o', o.id, o.subject, o.what, o.at)::relevo.shadow_side from ours o), tolerance)
    ), far as materialized (
      select * from relevo.pair_sends(array(select row('t', t.id, t.subject, t.what, t.at)::relevo.shadow_side from theirs t
                                             where not exists (select from near n where n.theirs = t.id)
                                            union all
                                            select row('o', o.id, o.subject, o.what, o.at)::relevo.shadow_side from ours o
                                             where not exists (select from near n where n.ours = o.id)), reach)
    ), pair as materialized (
      select * from near union all select * from far
    ), their_side as materialized (
      select t.*, p.ours,
             lag(t.at) over (partition by t.subject, t.what order by t.at, t.id) >= t.at - reach as follows,
             count(p.ours) over (partition by t.subject, t.what order by t.at range between reach preceding and reach following) > 0 as has_paired
        from theirs t left join pair p on p.theirs = t.id
    ), our_side as materialized (
      select o.*, p.theirs,
             not by_phone and count(p.theirs) over (partition by o.event_id, o.subject) > 0 as was_told,
             row_number() over (partition by o.event_id, case when by_phone then o.id::text else o.subject end order by o.at, o.id) as place
        from ours o left join pair p on p.ours = o.id
    )
    select case when o.at > t.at + tolerance then 'later' when o.at < t.at - tolerance then 'earlier' else 'same' end,
           t.at, o.at, o.installation_id, o.owner, o.event_type, o.event_key, o.title, o.event_id, o.id
      from their_side t join our_side o on o.id = t.ours
     where t.at between from_at and to_at
    union all
    select case when t.subject is not null and (t.has_paired or t.follows) then 'doubled' else 'missing' end,
           t.at, null, t.installation_id, t.owner, t.event_type, t.event_key, t.title, null, null
      from their_side t
     where t.ours is null and t.at between from_at and to_at
    union all
    select 'extra', null, o.at, o.installation_id, o.owner, o.event_type, o.event_key, o.title, o.event_id, o.id
      from our_side o
     where o.theirs is null and not o.was_told and o.place = 1 and o.at between from_at and to_at;
end
$$;

revoke all on function relevo.compare_shadow from public;
