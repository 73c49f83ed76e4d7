-- Returns the profile of these quiet hours: the one that is there, or a new one. None for null.
create or replace function relevo.share_profile(of_windows jsonb, of_zone text) returns int
  language plpgsql volatile
as $$
declare
  hours int4multirange;
  found_id int;
begin
  if of_windows is null or of_windows = 'null' then
    return null;
  end if;
  hours := relevo.quiet_windows(of_windows);
  select p.id into found_id from relevo.quiet_profiles p where p.zone = coalesce(of_zone, '') and p.windows = hours for key share; -- until it is used nobody deletes it
  if found_id is null then
    insert into relevo.quiet_profiles (zone, windows) values (coalesce(of_zone, ''), hours)
    on conflict (zone, windows) do update set zone = excluded.zone -- somebody else may have made it meanwhile
    returning id into found_id;
  end if;
  return found_id;
end
$$;

revoke all on function relevo.share_profile from public;
