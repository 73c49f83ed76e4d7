-- Marks an item of an inbox as read, unread, seen, unseen, or to archive or unarchive it; returns whether there is such an item. A read item was
-- seen; what is unseen was not read. The same mark again changes nothing.
create or replace function relevo.mark_inbox(asked jsonb, of_event bigint, mark text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
  s relevo.inbox_subject := relevo.find_inbox(asked);
  item record;
  inbox bigint;
  done record;
begin
  if mark is null or mark <> all (array['read', 'unread', 'seen', 'unseen', 'archive', 'unarchive']) then
    perform relevo.refuse('mark must be read, unread, seen, unseen, archive or unarchive');
  end if;
  select i.* into item from relevo.find_inbox_item(s, of_event) i;
  if not found then
    return false;
  end if;
  inbox := relevo.open_inbox(s);
  if inbox is null then
    return false;
  end if;
  insert into relevo.inbox_marks as m (inbox_id, event_id, place, at, seen_at, read_at)
  values (inbox, of_event, item.place, item.at, case when item.at <= s.seen_before then s.seen_before end,
          case when item.at <= s.read_before then s.read_before end)
  on conflict do nothing;
  update relevo.inbox_marks m set seen_at = n.seen_at, read_at = n.read_at, archived_at = n.archived_at
    from (select m.read_at as former, case when mark in ('read', 'seen') then coalesce(m.seen_at, now()) when mark <> 'unseen' then m.seen_at end as seen_at,
                 case when mark = 'read' then coalesce(m.read_at, now()) when mark not in ('unread', 'unseen') then m.read_at end as read_at,
                 case when mark = 'archive' then coalesce(m.archived_at, now()) when mark <> 'unarchive' then m.archived_at end as archived_at
            from relevo.inbox_marks m where m.inbox_id = inbox and m.event_id = of_event for update) n
   where m.inbox_id = inbox and m.event_id = of_event
     and (m.seen_at, m.read_at, m.archived_at) is distinct from (n.seen_at, n.read_at, n.archived_at)
  returning n.former, m.read_at into done;
  if found and (done.former is null) <> (done.read_at is null) then
    perform relevo.note_read(array[of_event], s.owner, s.project, case when done.former is null then 1 else -1 end);
  end if;
  return true;
end
$$;

revoke all on function relevo.mark_inbox from public;
