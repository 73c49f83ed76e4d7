-- Returns the next phones with a preference that matches an event, up to a slice of candidates:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers, sending projects, and
-- their quiet hours and the inboxes of their owners if one of them has any.
-- Candidates come from the index of preferences: the first few in any order, more by windows of sequence numbers.
create or replace function relevo.matching_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[])
  language plpgsql volatile
as $$
declare
  rule text := case when e.category is not null then relevo.category_rule(e.category) end;
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[] := relevo.buckets_of(e);
  seqs bigint[];
  candidates int;
  window_end bigint := e.fanout_upto;
begin
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
  select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project), case when count(t.hours) > 0 then array_agg(t.hours) end,
         case when count(t.inbox_id) > 0 then array_agg(t.inbox_id) end
    into phones, providers, projects, hours, inboxes
    from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project, coalesce(i.quiet, i.owner_quiet) as hours, i.inbox_id
            from relevo.device_installations i
           where i.seq = any (seqs) and relevo.may_receive(i)
             and relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null and (e.project is null or i.project = e.project)) t;
  last_seq := coalesce(last_seq, window_end); -- nobody in a window
end
$$;

revoke all on function relevo.matching_targets from public;
