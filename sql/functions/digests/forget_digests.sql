-- Forgets what digests told an installation.
create or replace function relevo.forget_digests(installation uuid) returns void
  language sql volatile
as $$
  delete from relevo.digest_contents c
   using relevo.device_installations i, relevo.notification_deliveries d
   where i.installation_id = installation and d.installation_id = installation and d.event_type = 'relevo.digest'
     and c.event_id = d.notification_event_id and c.seq = i.seq
$$;

revoke all on function relevo.forget_digests from public;
