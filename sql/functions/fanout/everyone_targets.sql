-- Returns the next phones of all, or of one project, up to a slice of them:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers, sending projects, and
-- their quiet hours and the inboxes of their owners if one of them has any.
-- Each way has a plan of its own.
create or replace function relevo.everyone_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[])
  language plpgsql volatile
as $$
declare
  rule text := case when e.category is not null then relevo.category_rule(e.category) end;
begin
  if e.project is null then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in), case when count(t.hours) > 0 then array_agg(t.hours) filter (where t.is_in) end,
           case when count(t.inbox_id) > 0 then array_agg(t.inbox_id) filter (where t.is_in) end
      into is_last, last_seq, phones, providers, projects, hours, inboxes
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project,
                   coalesce(i.quiet, i.owner_quiet) as hours, i.inbox_id, relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  else
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in), case when count(t.hours) > 0 then array_agg(t.hours) filter (where t.is_in) end,
           case when count(t.inbox_id) > 0 then array_agg(t.inbox_id) filter (where t.is_in) end
      into is_last, last_seq, phones, providers, projects, hours, inboxes
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project,
                   coalesce(i.quiet, i.owner_quiet) as hours, i.inbox_id, relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null as is_in
              from relevo.device_installations i
             where i.project = e.project and i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  end if;
  last_seq := coalesce(last_seq, e.fanout_upto);
end
$$;

revoke all on function relevo.everyone_targets from public;
