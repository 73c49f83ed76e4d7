-- Brings the phones of a project whose digests close by its zone to their slots anew, after it changed: a thousand at once, and the cycle digest does the rest.
create or replace function relevo.follow_default_zone(of_project text) returns void
  language plpgsql volatile
as $$
begin
  if exists (select from relevo.digest_followers f where f.project = of_project) then
    insert into relevo.digest_moves as m (project) values (of_project) on conflict (project) do update set place = null;
    perform relevo.move_followers(of_project, 1000);
  end if;
end
$$;

revoke all on function relevo.follow_default_zone from public;
