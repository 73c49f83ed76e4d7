-- due_lanes as 0.3.0 calls it. A lane in which all that is due are digests or told by the texts of their type, none of which it gets, or in shadow
-- mode, which it does not know, waits for five seconds: it would ask for it twenty times a second.
create or replace function relevo.due_lanes_2(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes
    text[], again_since timestamptz[], after_project text, after_lane text, most int) returns table (project text, lane text, due_at
    timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint, next_xid bigint, walked int, last_project
    text, last_lane text)
  language sql stable
as $$
  select l.project, l.lane, l.due_at,
         case when l.wait_s <= 0 and (exists (select from relevo.wordings) or exists (select from relevo.digests))
                   and not exists (select from relevo.due_chunks c
                                    where c.project = l.project and c.lane = l.lane and c.due_at <= relevo.now($1) and c.event_type <> 'relevo.digest' and not relevo.is_any_worded(coalesce(c.events, array[c.event_id])))
              then 5 when l.wait_s <= 0 and l.in_shadow then 5 else l.wait_s end,
         l.troubled, l.numbered, l.oldest_xid, l.next_xid, l.walked, l.last_project, l.last_lane
    from relevo.due_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9) l
$$;

revoke all on function relevo.due_lanes_2 from public;
