-- Writes the deliveries of a slice of an event: of phones in quiet hours for later, and as skipped what is gathered in a digest or a batch, or above a cap:
-- returns how many of each, null if there is none.
create or replace function relevo.write_slice(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], hours int[], inboxes bigint[],
                                              gathered uuid[], deliveries text[])
  returns jsonb
  language plpgsql volatile
as $$
declare
  dues timestamptz[];
  met int := cardinality(phones);
  held jsonb;
  above int[];
  n record;
begin
  if gathered is not null or e.audience = 'installations' and relevo.is_batched(e) then
    if gathered is not null then
      n := relevo.write_gathered(
        e => e, at => at, phones => phones, providers => providers, projects => projects, hours => hours, inboxes => inboxes, gathered => gathered,
        deliveries => deliveries);
    else
      n := relevo.write_batched(e, at, phones, providers, projects, hours, inboxes);
    end if;
    held := jsonb_build_object(case when gathered is not null then 'gathered' else 'batched' end, met - coalesce(cardinality(n.phones), 0));
    if n.phones is null then
      return held;
    end if;
    phones := n.phones;
    providers := n.providers;
    projects := n.projects;
    hours := n.hours;
    inboxes := n.inboxes;
  end if;
  dues := case when hours is not null then relevo.quiet_dues(e, phones, at, hours)
               when exists (select from relevo.quiet_defaults) then relevo.quiet_dues(e, phones, at) end;
  if exists (select from relevo.caps) and relevo.is_under_caps(e) then
    above := relevo.reserve_caps(e, phones, dues, at);
  end if;
  if above is null then
    perform relevo.write_deliveries(e, at, phones, providers, projects, dues, inboxes);
    return held;
  end if;
  held := coalesce(held, '{}') || relevo.write_capped(e, at, phones, providers, projects, above, inboxes);
  select array_agg(u.phone) as phones, array_agg(u.provider) as providers, array_agg(u.project) as projects,
         case when dues is not null then array_agg(u.due) end as dues, case when inboxes is not null then array_agg(u.inbox_id) end as inboxes
    into n
    from unnest(phones, providers, projects, dues, above, inboxes) as u(phone, provider, project, due, cap, inbox_id) where u.cap is null;
  if n.phones is not null then
    perform relevo.write_deliveries(e, at, n.phones, n.providers, n.projects, n.dues, n.inboxes);
  end if;
  return held;
end
$$;

revoke all on function relevo.write_slice from public;
