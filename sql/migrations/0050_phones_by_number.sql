-- needs relevo 0.2.0
-- A fan-out's plan is kept as long as its connection. One made while there were few phones walked along a whole slice of them for each that
-- asked: after thousands were registered at once, a slice took longer than a statement may, until the tables were analysed. Each that asked
-- is now looked up by its number, as named ones are by their ids. Whom an event reaches is as it was.

create or replace function relevo.slice_targets(event_id bigint, kind text, buckets text[], after_seq bigint, upto_seq bigint)
  returns table (installation_id uuid, project text, provider text)
  language sql stable
as $$
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    cross join (
      select distinct x.seq
        from relevo.notification_events e
        join relevo.preference_index x on x.bucket = any (slice_targets.buckets) and x.seq > after_seq and x.seq <= upto_seq
       where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
         and (x.sure or exists (select from relevo.notification_preferences p
                                  where p.installation_id = x.installation_id and p.name = x.name
                                    and relevo.preference_matches(p, e)))) c
    cross join lateral (select i as phone from relevo.device_installations i where i.seq = c.seq offset 0) n
   where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
  union all
  select i.installation_id, i.project, i.provider
    from relevo.notification_events e
    join relevo.device_installations i on i.seq > after_seq and i.seq <= upto_seq
   where slice_targets.kind = 'everyone' and e.id = slice_targets.event_id and not i.for_news
     and relevo.may_receive(i) and (e.category is null or e.category <> all (i.opt_outs))
  union all
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    join relevo.event_audience a on a.event_id = e.id
    -- looked up one by one: few are named, and a walk along all phones would find the newest last
    cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) n
   where slice_targets.kind = 'installations' and e.id = slice_targets.event_id
     and (n.phone).seq > after_seq and (n.phone).seq <= upto_seq
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
  union all
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    join relevo.event_owners o on o.event_id = e.id
    cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner offset 0) n
   where slice_targets.kind = 'installations' and e.id = slice_targets.event_id
     and (n.phone).seq > after_seq and (n.phone).seq <= upto_seq
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
$$;
