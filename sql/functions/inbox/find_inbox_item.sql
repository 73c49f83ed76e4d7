-- Returns an event's place in an inbox, and when it came there; no row if it is no item of it.
create or replace function relevo.find_inbox_item(s relevo.inbox_subject, of_event bigint)
  returns table (place bigint, at timestamptz)
  language sql stable
as $$
  select f.place, f.at
    from relevo.list_item_places(s, of_event) c
    cross join lateral relevo.filter_inbox(
      s => s, wanted => 'all', of_category => null, of_type => null, places => array[c.place], events => array[of_event], days => array[c.day],
      ats => array[c.at], reaches => 0, most => 1) f
   order by f.place
   limit 1
$$;

revoke all on function relevo.find_inbox_item from public;
