-- Returns of events that were gathered for phones, when their digest closes, the digest that tells them now, or by a code why none does. `nth` orders events, the best first: by
-- their score, then the latest.
create or replace function relevo.judge_items(seqs bigint[], events bigint[], inboxes bigint[], at timestamptz)
  returns table (place relevo.digest_place, code text, nth bigint)
  language sql stable
  set enable_nestloop = off set enable_hashjoin = on set enable_sort = on set jit = off -- each row is looked up once, lateral
as $$
  with told as materialized (
    select e.*, row_number() over (order by relevo.event_score(e.e) desc, (e.e).fanout_finished_at desc, e.id desc) as nth, relevo.category_rule((e.e).category) as rule
      from (select distinct u.id from unnest(events) as u(id)) u
      cross join lateral (select e.id, e from relevo.notification_events e where e.id = u.id offset 0) e
  ), phones as materialized (
    select i.i from (select distinct u.seq from unnest(seqs) as u(seq)) u
      cross join lateral (select i from relevo.device_installations i where i.seq = u.seq offset 0) i
  )
  select p, coalesce(
           case when u.inbox_id is not null and u.inbox_id is distinct from (i.i).inbox_id then 'owner_changed'
                when (e.e).project <> (i.i).project then 'project_changed' end,
           relevo.event_obstacle(e.id, (e.e).ended_at, (e.e).deadline_at, at,
                                 case when (i.i).handled_before is not null or (select exists (select from relevo.event_completions)) then relevo.is_handled(e.e, i.i) else false end),
           relevo.obstacle_of_phone((i.i).installation_id, relevo.may_receive(i.i),
                                    relevo.unwanted((i.i).opt_outs, (i.i).refused, (i.i).accepted, (e.e).category, e.rule)),
           case when p.delivery is null then 'preference_changed' end), e.nth
    from unnest(seqs, events, inboxes) as u(seq, event_id, inbox_id)
    join relevo.digest_places(seqs, events) p on p.seq = u.seq and p.event_id = u.event_id
    join phones i on (i.i).seq = u.seq
    left join told e on e.id = u.event_id
$$;

revoke all on function relevo.judge_items from public;
