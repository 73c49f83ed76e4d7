-- Returns true for the usual event with which nothing is wrong, at little cost; for any other it returns false or null, and check_event decides.
-- It earns 58 % of the row enqueue_many of `make bench ARGS="--only enqueue"`, run with it and without in turns.
create or replace function relevo.is_plain_event(event jsonb) returns boolean
  language plpgsql immutable
as $$
begin
  -- in steps: PostgreSQL prepares the whole of an expression anew in every transaction, and few events have all fields
  if (jsonb_typeof(event) = 'object'
      and event - array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'owners', 'category', 'lane', 'at_most_once',
                        'scheduled_at', 'deadline_at', 'ttl_s', 'on_conflict', 'project', 'traceparent'] = '{}'
      and jsonb_typeof(event -> 'type') = 'string' and length(event ->> 'type') <= 100 and btrim(event ->> 'type') <> ''
      and jsonb_typeof(event -> 'key') = 'string' and length(event ->> 'key') <= 300 and btrim(event ->> 'key') <> ''
      and jsonb_typeof(event -> 'title') = 'string' and length(event ->> 'title') <= 500
      and (ascii(event ->> 'title') between 33 and 126 or not relevo.is_blank(event ->> 'title')) -- most begin with a letter
      and coalesce(jsonb_typeof(event -> 'body') in ('string', 'null') and length(event ->> 'body') <= 2000, event ->> 'body' is null)
      and coalesce(jsonb_typeof(event -> 'data') in ('object', 'null') and not relevo.is_too_deep(event -> 'data'), true)
      and octet_length(event::text) <= 3400) is not true then
    return false;
  end if;
  if event ?| array['category', 'project', 'lane', 'at_most_once', 'ttl_s', 'on_conflict', 'traceparent'] then
    if (coalesce(jsonb_typeof(event -> 'category') in ('string', 'null') and length(event ->> 'category') between 1 and 100, event ->> 'category' is null)
        and coalesce(jsonb_typeof(event -> 'project') in ('string', 'null') and length(event ->> 'project') between 1 and 200, event ->> 'project' is null)
        and coalesce(relevo.is_traceparent(event ->> 'traceparent'), true)
        and coalesce(event ->> 'on_conflict' in ('refuse', 'keep'), true)
        and coalesce(event ->> 'lane' in ('urgent', 'bulk'), true)
        and coalesce(jsonb_typeof(event -> 'at_most_once') in ('boolean', 'null'), true)
        and case when event ->> 'ttl_s' is null then true
                 when jsonb_typeof(event -> 'ttl_s') <> 'number' then false
                 else (event ->> 'ttl_s')::numeric between 1 and 2419200 and (event ->> 'ttl_s')::numeric % 1 = 0 end) is not true then
      return false;
    end if;
  end if;
  if coalesce(event -> 'push', '{}') not in ('{}', 'null') then
    if jsonb_typeof(event -> 'push') <> 'object' or relevo.push_complaint(event -> 'push') is not null then
      return false;
    end if;
  end if;
  case event ->> 'audience'
    when 'installations' then
      return case when jsonb_typeof(event -> 'installations') = 'array' and jsonb_array_length(event -> 'installations') <= 1000 then
               -- as one pattern it would cost half of the whole check, as a subquery more than that
               event ->> 'installations'
                 like '["' || repeat('________-____-____-____-____________", "', jsonb_array_length(event -> 'installations') - 1)
                      || '________-____-____-____-____________"]'
               and replace(event ->> 'installations', '", "', '') ~ E'^\\["[0-9a-fA-F-]+"]$'
               and length(replace(replace(event ->> 'installations', '", "', ''), '-', '')) = 4 + 32 * jsonb_array_length(event -> 'installations')
             end
             and event ->> 'owners' is null;
    when 'owners' then
      return case when jsonb_typeof(event -> 'owners') = 'array' then jsonb_array_length(event -> 'owners') <= 1000 end
             and length(event ->> 'owners') <= 204 -- then none is longer than 200; of more, check_event counts each
             and event ->> 'owners' ~ E'^\\["[^"\\\\]+"(?:, "[^"\\\\]+")*]$'
             and event ->> 'installations' is null;
    when 'everyone' then
      return event ->> 'installations' is null and event ->> 'owners' is null;
    else
      return false;
  end case;
end
$$;

revoke all on function relevo.is_plain_event from public;
