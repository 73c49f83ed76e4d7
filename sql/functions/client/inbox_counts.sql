-- Returns how many items of an inbox are unread, and unseen: exactly up to 99, then "99+". Archived items count in neither, nor items found only
-- after walking along 10,000 deliveries that do not count.
create or replace function relevo.inbox_counts(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
  s relevo.inbox_subject := relevo.find_inbox(asked);
  unread bigint;
  unseen bigint; -- they are among the unread
  last bigint;
begin
  select count(w.event_id), count(w.event_id) filter (where w.seen_at is null), min(w.place) into unread, unseen, last
    from relevo.walk_inbox(s, 'unread', null, null, null, 100, 10000) w;
  if unread > 99 and unseen <= 99 then -- it goes on from there
    unseen := unseen + (select count(w.event_id) from relevo.walk_inbox(s, 'unseen', null, null, last, 100 - unseen::int, 10000) w);
  end if;
  return jsonb_build_object('unread', case when unread > 99 then to_jsonb('99+'::text) else to_jsonb(unread) end,
                            'unseen', case when unseen > 99 then to_jsonb('99+'::text) else to_jsonb(unseen) end);
end
$$;

revoke all on function relevo.inbox_counts from public;
