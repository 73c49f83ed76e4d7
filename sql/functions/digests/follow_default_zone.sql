-- Puts the phones of a project whose digests close by its zone into their slots anew, after it changed.
create or replace function relevo.follow_default_zone(of_project text) returns void
  language plpgsql volatile
as $$
declare
  moved uuid[] := array(select distinct i.installation_id
                          from relevo.digest_followers f
                          cross join lateral (select i.installation_id, i from relevo.device_installations i
                                               where i.installation_id = f.installation_id and i.timezone is null offset 0) i
                         where f.project = of_project and f.zone <> relevo.digest_zone(i.i));
begin
  if moved <> '{}' then
    perform relevo.follow_digests(moved);
  end if;
end
$$;

revoke all on function relevo.follow_default_zone from public;
