-- Locks the partition of a day's deliveries against its seal until the transaction ends, after the table, as every statement on it does. A
-- month without a partition has nothing to seal.
create or replace function relevo.hold_month(of_day date) returns void
  language plpgsql volatile
as $$
declare
  place text := 'relevo.notification_deliveries' || to_char(of_day, '_YYYY_MM');
begin
  if to_regclass(place) is not null then
    lock table only relevo.notification_deliveries in row exclusive mode;
    execute 'lock table ' || place || ' in row exclusive mode';
  end if;
end
$$;

revoke all on function relevo.hold_month from public;
