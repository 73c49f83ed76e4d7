-- Returns a time of an event, or refuses it by name; the place says which of many events it is. A time without a zone is refused: it would mean
-- something else in every session.
create or replace function relevo.event_time(event jsonb, name text, place bigint) returns timestamptz
  language plpgsql stable
as $$
declare
  given timestamptz;
begin
  if jsonb_typeof(event -> name) is not distinct from 'null' or not event ? name then
    return null;
  end if;
  if event ->> name ~* E'^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])[T ]([01]\\d|2[0-3]):[0-5]\\d(:[0-5]\\d(\\.\\d{1,6})?)?(Z|[+-](0\\d|1[0-4])(:?[0-5]\\d)?)$' then
    given := (event ->> name)::timestamptz; -- there is such a day in every month: without a subtransaction
  else
    begin
      given := (event ->> name)::timestamptz;
    exception when others then
      given := null;
    end;
  end if;
  if given is null or event ->> name !~* E'^\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?(Z|[+-]\\d\\d(:?\\d\\d)?)$' then
    perform relevo.refuse_event(place, format('%s must be a time with its zone, such as 2026-11-15T09:00:00Z, got %s', name, left(event ->> name, 60)));
  end if;
  if given not between '2000-01-01Z' and '2200-01-01Z' then
    perform relevo.refuse_event(place, format('%s must lie between the years 2000 and 2200, got %s', name, given));
  end if;
  return given;
end
$$;

revoke all on function relevo.event_time from public;
