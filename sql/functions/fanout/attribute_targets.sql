-- Returns the next phones that have the attributes an event is for, up to a slice of candidates:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers, sending projects, and
-- their quiet hours and the inboxes of their owners if one of them has any.
-- Candidates come from the index, of the event's project if it has one, by the attribute that the fewest phones have; the phone's row decides.
create or replace function relevo.attribute_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[])
  language plpgsql volatile
  set enable_seqscan = off -- lookups only
as $$
declare
  rule text := case when e.category is not null then relevo.category_rule(e.category) end;
  seqs bigint[];
begin
  seqs := array(select relevo.phones_with_words(relevo.rarest_words(e.match_where, e.project), e.project, e.fanout_cursor, e.fanout_upto, most));
  is_last := cardinality(seqs) < most;
  last_seq := coalesce(seqs[cardinality(seqs)], e.fanout_upto);
  select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project), case when count(t.hours) > 0 then array_agg(t.hours) end,
         case when count(t.inbox_id) > 0 then array_agg(t.inbox_id) end
    into phones, providers, projects, hours, inboxes
    from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project, coalesce(i.quiet, i.owner_quiet) as hours, i.inbox_id
            from relevo.device_installations i
           where i.seq = any (seqs) and relevo.may_receive(i) and not i.for_news and (e.project is null or i.project = e.project)
             and not exists (select from jsonb_each(e.match_where) as w(key, value)
                              where not relevo.has_attribute(relevo.known_attributes(i.owner_attributes, i.attributes), w.key, w.value))
             and relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null) t;
end
$$;

revoke all on function relevo.attribute_targets from public;
