-- Returns the requested profile of quiet hours, given the former one: a field that is left out stays as it is, and null as windows removes the
-- hours. It rejects hours without a time zone unless their phones have one.
create or replace function relevo.asked_profile(asked jsonb, former int, has_zone boolean) returns int
  language plpgsql volatile
as $$
declare
  before relevo.quiet_profiles;
  of_windows jsonb := asked -> 'windows';
  of_zone text := asked ->> 'zone';
begin
  if of_windows = 'null' then
    return null;
  end if;
  select p.* into before from relevo.quiet_profiles p where p.id = former;
  if not asked ? 'windows' then
    of_windows := relevo.shown_windows(before.windows);
    if not asked ? 'zone' then
      perform relevo.refuse('windows must be given: a list such as ["22:00-07:00"], or null to remove the quiet hours');
    end if;
    if before.id is null then
      perform relevo.refuse('windows must be given beside zone, as a list such as ["22:00-07:00"]: there are no quiet hours yet whose zone could change');
    end if;
  end if;
  if not asked ? 'zone' then
    of_zone := nullif(before.zone, '');
  end if;
  if of_zone is null and of_windows <> '[]' and not has_zone then
    perform relevo.refuse('zone must be given, such as America/Santiago: a phone that did not register its timezone goes by the zone of its quiet hours');
  end if;
  return relevo.share_profile(of_windows, of_zone);
end
$$;

revoke all on function relevo.asked_profile from public;
