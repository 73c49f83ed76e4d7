-- Returns whether any of some events may be urgent: by its own lane, or by that of its type.
create or replace function relevo.any_urgent(events jsonb) returns boolean
  language sql stable
  set enable_seqscan = off -- lookups only
  return events @> '[{"lane": "urgent"}]'
      or (exists (select from relevo.event_types t where t.lane = 'urgent')
          and exists (select from (select distinct g.event ->> 'type' as event_type from jsonb_array_elements(events) as g(event)) g
                       cross join lateral (select from relevo.event_types t where t.event_type = g.event_type and t.lane = 'urgent' offset 0) t));

revoke all on function relevo.any_urgent from public;
