-- Trigger: a phone that is in another time zone or project now has its digests there.
create or replace function relevo.move_digests() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if exists (select from relevo.notification_preferences p where p.installation_id = new.installation_id and p.delivery is not null) then
    perform relevo.follow_digests(array[new.installation_id]);
  end if;
  return null;
end
$$;

revoke all on function relevo.move_digests from public;
