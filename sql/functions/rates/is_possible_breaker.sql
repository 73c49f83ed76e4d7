-- Returns whether a breaker can be so: unless it is closed, it has a reason, who opened it, since when it is open, and when it tries again.
create or replace function relevo.is_possible_breaker(breaker text, reason text, opened_by text, since timestamptz, probe_at timestamptz) returns boolean
  language plpgsql immutable
as $$
begin
  if breaker = 'closed' then
    return reason is null and opened_by is null and since is null and probe_at is null;
  end if;
  return (breaker in ('open', 'probing') and reason <> '' and opened_by in ('request', 'receipt') and since is not null and probe_at is not null) is true;
end
$$;

revoke all on function relevo.is_possible_breaker from public;
