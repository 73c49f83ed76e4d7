-- Returns the next phones that an event names, by themselves or by their owners, up to a slice of them:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers, sending projects, and
-- their quiet hours and the inboxes of their owners if one of them has any.
-- An event that names a phone is for the owner that the phone had when it was enqueued, or if it had none for the first that it got since. An audience that is longer than a slice is cut into slices once, and these are kept.
create or replace function relevo.named_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[])
  language plpgsql volatile
as $$
declare
  rule text := case when e.category is not null then relevo.category_rule(e.category) end;
  owners_in text := coalesce(e.project, relevo.project_of_owners()); -- null: in all projects
  seqs bigint[];
  named uuid[];
begin
  if e.fanout_cursor > 0 then
    seqs := relevo.take_kept_slice(e);
  end if;
  if seqs is null then
    named := array(select a.installation_id from relevo.event_audience a where a.event_id = e.id
                   union all
                   select i.installation_id from relevo.event_owners o
                     cross join lateral (select i.installation_id from relevo.device_installations i where i.owner = o.owner and i.project = coalesce(owners_in, i.project) offset 0) i
                    where o.event_id = e.id);
    if cardinality(named) > most then
      seqs := relevo.cut_slices(e, named, most);
    end if;
  end if;
  if seqs is not null then
    named := array(select i.installation_id from relevo.device_installations i where i.seq = any (seqs));
  end if;
  last_seq := seqs[cardinality(seqs)];
  is_last := seqs is null or not exists (select from relevo.fanout_slices s where s.event_id = e.id and s.last_seq > named_targets.last_seq);
  select array_agg(i.installation_id), array_agg(i.provider), array_agg(relevo.sending_project(i.provider, i.project, i.part)),
         case when count(coalesce(i.quiet, i.owner_quiet)) > 0 then array_agg(coalesce(i.quiet, i.owner_quiet)) end,
         case when count(i.inbox_id) > 0 or count(a.inbox_id) > 0 then array_agg(coalesce(a.inbox_id, i.inbox_id)) end
    into phones, providers, projects, hours, inboxes
    from (select * from relevo.device_installations i where i.installation_id = any (named) offset 0) i -- not along all phones
    left join lateral (select a.installation_id, a.inbox_id from relevo.event_audience a where a.event_id = e.id and a.installation_id = i.installation_id offset 0) a on true
   where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and relevo.may_receive(i)
     and (a.installation_id is not null and not (a.inbox_id is null and relevo.had_another_owner(i.installation_id, i.owner_since, e.created_at)) -- else it is its owner's, as this statement reads the owner: it may have been handed over since it was found
          or exists (select from relevo.event_owners o where o.event_id = e.id and o.owner = i.owner and i.project = coalesce(owners_in, i.project) offset 0))
     and relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null and (e.project is null or i.project = e.project);
  last_seq := coalesce(last_seq, e.fanout_upto);
end
$$;

revoke all on function relevo.named_targets from public;
