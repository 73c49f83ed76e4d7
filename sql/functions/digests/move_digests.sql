-- Trigger: a phone that is in another time zone or project now, or whose quiet hours say another one, has its digests there.
create or replace function relevo.move_digests() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if (relevo.digest_zone(old), old.project) is distinct from (relevo.digest_zone(new), new.project)
     and (exists (select from relevo.notification_preferences p where p.installation_id = new.installation_id and p.delivery is not null)
          or exists (select from relevo.digest_extras x where x.installation_id = new.installation_id)) then
    perform relevo.follow_digests(array[new.installation_id]);
  end if;
  return null;
end
$$;

revoke all on function relevo.move_digests from public;
