-- Returns the slots that phones belong to by what their preferences say now.
create or replace function relevo.wanted_digests(phones uuid[]) returns table (project text, delivery text, zone text, seq bigint, installation_id uuid)
  language sql stable
as $$
  select distinct i.project, p.delivery, relevo.digest_zone(i), i.seq, i.installation_id
    from relevo.device_installations i
    join relevo.notification_preferences p on p.installation_id = i.installation_id
   where i.installation_id = any (phones) and p.enabled and p.delivery is not null and relevo.may_receive(i)
$$;

revoke all on function relevo.wanted_digests from public;
