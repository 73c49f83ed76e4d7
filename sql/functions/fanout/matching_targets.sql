-- Returns the next phones with a preference that matches an event, up to a slice of candidates:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers, sending projects, and
-- their quiet hours and the inboxes of their owners if one of them has any. Of those whose preferences all ask for digests `gathered` has the ids, and `deliveries` what each asks for; null if there is none.
-- Candidates come from the index of preferences: the first few in any order, more by windows of sequence numbers.
create or replace function relevo.matching_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[],
    out gathered uuid[], out deliveries text[])
  language plpgsql volatile
as $$
declare
  rule text := case when e.category is not null then relevo.category_rule(e.category) end;
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[] := relevo.event_buckets(e);
  seqs bigint[];
  later bigint[]; -- phones of which a preference that matches asks for a digest, and what it asks for
  asked text[];
  candidates int;
  window_end bigint := e.fanout_upto;
begin
  if e.fanout_cursor = 0 then -- most events have few: those are read in no order
    select count(*), array_agg(a.seq) filter (where a.is_match), array_agg(a.seq) filter (where a.is_match and a.delivery is not null),
           array_agg(a.delivery) filter (where a.is_match and a.delivery is not null)
      into candidates, seqs, later, asked
      from (select x.seq, x.delivery, x.sure or exists (select from relevo.notification_preferences p
                                                         where p.installation_id = x.installation_id and p.name = x.name and relevo.preference_matches(p, e)) as is_match
              from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
             limit few) a;
  end if;
  if e.fanout_cursor > 0 or candidates = few then
    window_end := relevo.matching_window(buckets, e.fanout_cursor, e.fanout_upto, most);
    select count(*), max(a.seq), array_agg(a.seq) filter (where a.is_match), array_agg(a.seq) filter (where a.is_match and a.delivery is not null),
           array_agg(a.delivery) filter (where a.is_match and a.delivery is not null)
      into candidates, last_seq, seqs, later, asked
      from (select x.seq, x.delivery, x.sure or exists (select from relevo.notification_preferences p
                                                         where p.installation_id = x.installation_id and p.name = x.name and relevo.preference_matches(p, e)) as is_match
              from relevo.preference_index x -- with ties: all preferences of a phone are in one slice
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
             -- one that was handed over lately, maybe since it was found, is asked for the preferences of who has it now
             and (i.owner_since is null or i.owner_since < now() - interval '1 hour' or exists (
                   select from relevo.notification_preferences p where p.installation_id = i.installation_id and relevo.preference_matches(p, e) offset 0))
             and relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null and (e.project is null or i.project = e.project)) t;
  if later is not null then
    select array_agg(i.installation_id), array_agg(d.delivery) into gathered, deliveries
      from (select u.seq, count(*) as n, (array_agg(u.delivery order by r.rank))[1] as delivery
              from unnest(later, asked) as u(seq, delivery)
              join (select d.delivery, relevo.delivery_rank(d.delivery) as rank from (select distinct unnest(asked) as delivery offset 0) d offset 0) r on r.delivery = u.delivery
             group by u.seq) d
      join (select u.seq, count(*) as n from unnest(seqs) as u(seq) group by u.seq) a on a.seq = d.seq and a.n = d.n
      join relevo.device_installations i on i.seq = d.seq;
  end if;
  last_seq := coalesce(last_seq, window_end); -- nobody in a window
end
$$;

revoke all on function relevo.matching_targets from public;
