-- Returns the next phones that an event is for, up to a slice of them: whether they are the last, the last one's sequence number, and of those
-- that may receive it the ids, providers and sending projects.
-- How it goes: by audience. Matching: candidates from the index of preferences, the first few in any order, more by windows of sequence
-- numbers. Everyone: along the phones, of all or of one project. Named: the slice that was kept, or the named phones, cut into slices if there
-- are too many.
create or replace function relevo.next_targets(e relevo.notification_events, most int,
                                      out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
declare
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[];
  seqs bigint[];
  named uuid[];
  candidates int;
  window_end bigint := e.fanout_upto;
begin
  if e.audience = 'matching' then
    buckets := relevo.buckets_of(e);
    if e.fanout_cursor = 0 then -- most events have few: those are read in no order
      select count(*),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, seqs
        from (select x.seq, x.sure, x.installation_id, x.name from relevo.preference_index x
               where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
               limit few) a;
    end if;
    if e.fanout_cursor > 0 or candidates = few then
      window_end := relevo.matching_window(buckets, e.fanout_cursor, e.fanout_upto, most);
      select count(*), max(a.seq),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, last_seq, seqs
        from (select x.seq, x.sure, x.installation_id, x.name -- with ties: all preferences of a phone are in one slice
                from relevo.preference_index x
               where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= window_end
               order by x.seq fetch first most rows with ties) a;
    end if;
    is_last := candidates < most and window_end >= e.fanout_upto;
    select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project)
      into phones, providers, projects
      from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project
              from relevo.device_installations i
             where i.seq = any (seqs) and relevo.may_receive(i)
               and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project)) t;
  elsif e.audience = 'everyone' and e.project is null then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  elsif e.audience = 'everyone' then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.project = e.project and i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  else
    if e.fanout_cursor > 0 then
      seqs := relevo.take_kept_slice(e);
    end if;
    if seqs is null then
      named := array(select a.installation_id from relevo.event_audience a where a.event_id = e.id
                     union all
                     select i.installation_id from relevo.event_owners o
                       cross join lateral (select i.installation_id from relevo.device_installations i where i.owner = o.owner offset 0) i
                      where o.event_id = e.id);
      if cardinality(named) > most then
        seqs := relevo.cut_slices(e, named, most);
      end if;
    end if;
    if seqs is not null then
      named := array(select i.installation_id from relevo.device_installations i -- whose owner changed since they were read is left out
                      where i.seq = any (seqs)
                        and (exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = i.installation_id offset 0)
                             or exists (select from relevo.event_owners o where o.event_id = e.id and o.owner = i.owner offset 0)));
    end if;
    last_seq := seqs[cardinality(seqs)];
    is_last := seqs is null or not exists (select from relevo.fanout_slices s where s.event_id = e.id and s.last_seq > next_targets.last_seq);
    select array_agg(i.installation_id), array_agg(i.provider), array_agg(relevo.sending_project(i.provider, i.project))
      into phones, providers, projects
      from (select * from relevo.device_installations i where i.installation_id = any (named) offset 0) i -- not along all phones
     where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and relevo.may_receive(i)
       and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project);
  end if;
  last_seq := coalesce(last_seq, window_end); -- nobody in a window
end
$$;

revoke all on function relevo.next_targets from public;
