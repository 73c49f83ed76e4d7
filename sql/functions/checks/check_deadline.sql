-- Returns a new event's deadline; refuses one that has passed or lies before the event itself.
create or replace function relevo.check_deadline(until timestamptz, at timestamptz, place bigint) returns timestamptz
  language plpgsql stable
as $$
begin
  if until <= greatest(at, now()) then
    perform relevo.refuse_event(place, format('deadline_at must lie after now and after scheduled_at, got %s', until));
  end if;
  return until;
end
$$;

revoke all on function relevo.check_deadline from public;
