-- Reads events as they are given: their place, what they say, the keys they are known by, their content's hash, phones and times.
create or replace function relevo.given_events(events jsonb)
  returns table (ord bigint, event jsonb, event_type text, keys text[], hash text, matching jsonb, installations uuid[], at timestamptz, until timestamptz)
  language sql stable
as $$
  select g.ord, g.event, g.event ->> 'type' as event_type,
         -- its own, and the one by which it is known if it was personal and is old or forgotten
         array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
         relevo.content_hash(g.event, g.at, g.until) as hash,
         g.event -> 'matching' as matching,
         case when jsonb_typeof(g.event -> 'installations') is distinct from 'array' then '{}'
              when jsonb_array_length(g.event -> 'installations') = 1 then array[(g.event -> 'installations' ->> 0)::uuid] -- most name one
              else array(select i.installation::uuid from jsonb_array_elements_text(g.event -> 'installations') as i(installation)) end as installations,
         g.at, g.until
    from (select g.ord, g.event,
                 coalesce(case when g.event ? 'scheduled_at' then relevo.event_time(g.event, 'scheduled_at', g.place) end, now()) as at,
                 case when g.event ? 'deadline_at' then relevo.event_time(g.event, 'deadline_at', g.place) end as until
            from (select j.event, j.ord, case when jsonb_array_length(events) > 1 then j.ord end as place -- of one alone nobody asks which
                    from jsonb_array_elements(events) with ordinality as j(event, ord)) g offset 0) g
$$;

revoke all on function relevo.given_events from public;
