-- Marks everything that came to an inbox until an instant, at the latest now, as read, or as seen; returns whether there is such an inbox.
create or replace function relevo.mark_inbox_before(asked jsonb, before timestamptz default null, mark text default 'read') returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  s relevo.inbox_subject := relevo.find_inbox(asked);
  until timestamptz := least(before, now());
  inbox bigint;
begin
  if mark is null or mark <> all (array['read', 'seen']) then
    perform relevo.refuse('mark must be read or seen');
  end if;
  inbox := relevo.open_inbox(s);
  if inbox is null then
    return false;
  end if;
  if mark = 'read' and exists (select from relevo.event_types t where t.opens or t.complete_on = 'read') then
    perform from relevo.inboxes b where b.id = inbox for no key update; -- who marks the same meanwhile counts nothing twice
    s := relevo.find_inbox(asked);
    perform relevo.note_read(array(
      select w.event_id from relevo.walk_inbox(s, 'unread', null, null, null, 10000, 10000) w where w.at <= until), s.owner, s.project, 1);
  end if;
  update relevo.inboxes b
     set seen_before = greatest(b.seen_before, until), read_before = case when mark = 'read' then greatest(b.read_before, until) else b.read_before end
   where b.id = inbox;
  update relevo.inbox_marks m
     set seen_at = coalesce(m.seen_at, now()), read_at = case when mark = 'read' then coalesce(m.read_at, now()) else m.read_at end
   where m.inbox_id = inbox and m.read_at is null and m.archived_at is null and m.at <= until and (mark = 'read' or m.seen_at is null);
  return true;
end
$$;

revoke all on function relevo.mark_inbox_before from public;
