-- Trigger: deletes the secret of a phone that changes its owner or is unregistered. A push that was claimed for the former owner is not sent: the
-- token's version changes, so the push returns to the queue, and the next claim reads the phone's owner.
create or replace function relevo.end_device_secret() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if old.owner is distinct from new.owner then
    new.owner_since := now();
    new.token_version := greatest(new.token_version, old.token_version + (old.owner is not null)::int);
  end if;
  delete from relevo.device_secrets s where s.installation_id = old.installation_id;
  return new;
end
$$;

revoke all on function relevo.end_device_secret from public;
