-- needs relevo 0.1.0
-- Phones over HTTP: each has a secret of its own, which ends when the phone changes hands.

create table relevo.device_secrets (
  installation_id uuid primary key references relevo.device_installations (installation_id) on delete cascade,
  secret_hash bytea not null check (octet_length(secret_hash) = 32),
  made_at timestamptz not null default now()
);

comment on table relevo.device_secrets is 'By what a phone proves over HTTP that it is this installation: the SHA-256 of its secret.';

alter table relevo.device_installations add column owner_since timestamptz;

comment on column relevo.device_installations.owner_since is 'Since when it has this owner, if it had another: nobody reads over HTTP what was before.';

create function relevo.end_device_secret() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if old.owner is distinct from new.owner then
    new.owner_since := now();
  end if;
  delete from relevo.device_secrets s where s.installation_id = old.installation_id;
  return new;
end
$$;

-- Whoever changes it, by whatever way: another owner, or a phone that was logged out.
create trigger end_device_secret before update on relevo.device_installations for each row
  when (old.owner is distinct from new.owner or (old.active and not new.active)) execute function relevo.end_device_secret();

revoke all on function relevo.end_device_secret() from public;
