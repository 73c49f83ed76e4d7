-- Returns the order in which deliveries count where several preferences of a phone match: now, hourly, daily, weekly; of the same kind the one whose time comes first in
-- the day, or in the week from Monday on.
create or replace function relevo.delivery_rank(delivery text) returns text
  language sql immutable parallel safe
  return case when delivery is null then '0' when delivery = 'hourly' then '1' when delivery like 'daily%' then '2' || right(delivery, 5)
              else '3' || strpos('mon tue wed thu fri sat sun', split_part(delivery, ' ', 2)) / 4 || right(delivery, 5) end;

revoke all on function relevo.delivery_rank from public;
