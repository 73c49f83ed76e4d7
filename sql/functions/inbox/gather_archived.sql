-- Returns the newest archived items of an inbox before a place, as gather_inbox does; not those that came by a phone that was forgotten.
create or replace function relevo.gather_archived(s relevo.inbox_subject, before bigint, wide int,
    out reaches bigint, out walked int, out places bigint[], out events bigint[], out days date[], out ats timestamptz[], out came_by uuid[])
  language sql stable
as $$
  select case when count(*) = wide then min(m.place) else 0 end, count(*)::int, array_agg(m.place) filter (where i.is_item), array_agg(m.event_id) filter (where i.is_item),
         array_agg(null::date) filter (where i.is_item), array_agg(m.at) filter (where i.is_item), array_agg(null::uuid) filter (where i.is_item)
    from (select m.place, m.event_id, m.at from relevo.inbox_marks m
           where m.inbox_id = s.inbox_id and m.archived_at is not null and m.place < before and (s.owner is not null or m.at > s.since[1])
           order by m.place desc limit wide) m
    cross join lateral (select exists (select from relevo.list_item_places(s, m.event_id)) as is_item offset 0) i
$$;

revoke all on function relevo.gather_archived from public;
