-- Returns the events of a batch that its push still shows. It leaves out events that ended, passed their deadline, were handled by the owner on a
-- phone, or reached the phone for another owner. Of events with one collapse key it keeps the last, unless a later one is pushed otherwise. Relevo
-- asks when the batch closes, and again right before the request. Later changes are looked up once for all events, phone by phone, until each event
-- has a phone for which it counts.
create or replace function relevo.left_of_batch(b relevo.batches, at timestamptz) returns bigint[]
  language plpgsql stable
  set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan -- to plan it for each batch anew takes longer than the look
as $$
declare
  undecided bigint[];
  collapses text[];
  since date;
  told bigint[] := '{}';
  phone record;
begin
  select array_agg(e.id), array_agg(distinct e.collapse) filter (where e.collapse is not null), min(least(e.event_day, (e.scheduled_at at time zone 'UTC')::date))
    into undecided, collapses, since
    from unnest(b.events) as u(id)
    cross join lateral (select e.id, e.event_day, e.collapse, e.scheduled_at from relevo.notification_events e
                         where e.id = u.id and e.ended_at is null and (e.deadline_at > at) is not false offset 0) e;
  if collapses is not null then
    undecided := array(
      with later as materialized (select g.collapse, g.scheduled_at, g.event_id from relevo.gathered_later(b, collapses, at) g)
      select e.id from relevo.notification_events e
       where e.id = any (undecided)
         and not exists (select from later l where l.collapse = e.collapse and (l.scheduled_at, l.event_id) > (e.scheduled_at, e.id)));
  end if;
  for phone in
    select i.installation_id, i.owner, i.project, i.handled_before, i.inbox_id, i.owner_since from relevo.device_installations i where b.subject like 'o:%' and i.owner = substr(b.subject, 3)
    union all
    select i.installation_id, i.owner, i.project, i.handled_before, i.inbox_id, i.owner_since from relevo.device_installations i
     where i.installation_id = case when b.subject like 'i:%' then substr(b.subject, 3)::uuid end
  loop
    exit when undecided = '{}';
    told := told || array(
      with later as materialized (
        select s.collapse, s.scheduled_at, s.event_id from relevo.shown_later(phone.installation_id, b.event_type, collapses, since, phone.inbox_id) s where collapses is not null
      )
      select e.id
        from unnest(undecided) as u(id)
        cross join lateral (select e.id, e.event_day, e.collapse, e.scheduled_at from relevo.notification_events e where e.id = u.id offset 0) e
        cross join lateral (select d.created_at, d.inbox_id from relevo.notification_deliveries d
                             where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = phone.installation_id
                               and d.last_error_code = 'batched' offset 0) d
       where (phone.handled_before >= d.created_at) is not true
         and not relevo.is_for_another('installations', d.inbox_id, d.created_at, phone.installation_id, phone.inbox_id, phone.owner_since)
         and not exists (select from relevo.event_completions c where c.event_id = e.id and c.owner = phone.owner and coalesce(c.project, phone.project) = phone.project)
         and not exists (select from later l where l.collapse = e.collapse and (l.scheduled_at, l.event_id) > (e.scheduled_at, e.id)));
    undecided := array(select u.id from unnest(undecided) as u(id) where u.id <> all (told));
  end loop;
  return (select array_agg(l.id order by l.place) filter (where l.is_last)
            from (select e.id, u.place, e.collapse is null or row_number() over (partition by e.collapse order by u.place desc) = 1 as is_last
                    from unnest(b.events) with ordinality as u(id, place)
                    cross join lateral (select e.id, e.collapse from relevo.notification_events e where e.id = u.id offset 0) e
                   where u.id = any (told)) l);
end
$$;

revoke all on function relevo.left_of_batch from public;
