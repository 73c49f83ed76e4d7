-- Returns how good an event is among those of a digest: by its relevance, else by the number `score` in its data.
create or replace function relevo.event_score(e relevo.notification_events) returns numeric language sql immutable
  return case when jsonb_typeof((e).push -> 'relevanceScore') = 'number' then ((e).push ->> 'relevanceScore')::numeric
              when jsonb_typeof((e).data -> 'score') = 'number' then ((e).data ->> 'score')::numeric else 0 end;

revoke all on function relevo.event_score from public;
