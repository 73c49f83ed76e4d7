-- Returns the order in which kinds of delivery count where several preferences of a phone match: the soonest does.
create or replace function relevo.delivery_rank(delivery text) returns text
  language sql immutable parallel safe
  return case when delivery is null then '0' when delivery = 'hourly' then '1' when delivery like 'daily%' then '2' else '3' end || coalesce(delivery, '');

revoke all on function relevo.delivery_rank from public;
