-- Returns the next phones of all, or of one project, up to a slice of them:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers and sending projects.
-- Each way has a plan of its own.
create or replace function relevo.everyone_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
declare
  rule text := relevo.category_rule(e.category);
begin
  if e.project is null then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project,
                   relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  else
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project, i.part) as project,
                   relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, rule) is null as is_in
              from relevo.device_installations i
             where i.project = e.project and i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  end if;
  last_seq := coalesce(last_seq, e.fanout_upto);
end
$$;

revoke all on function relevo.everyone_targets from public;
