-- Returns the buckets of the index under which preferences that may match an event stand, some perhaps twice. Like event_buckets, but for the
-- usual event without a query.
create or replace function relevo.buckets_of(e relevo.notification_events) returns text[]
  language plpgsql immutable
as $$
begin
  if e.match_topics <> '{}' or strpos(array_to_string(e.match_prefixes, ''), chr(31)) > 0 then
    return relevo.event_buckets(e);
  end if;
  return array['*'] || array_remove(string_to_array('k:' || replace(btrim(e.match_words), ' ', ' k:'), ' '), 'k:')
    || string_to_array('r:' || array_to_string(nullif(e.match_prefixes, '{}'), chr(31) || 'r:'), chr(31))
    || case when e.match_region is not null then array['g:' || e.match_region] end
    || case when e.match_tipo is not null then array['t:' || relevo.text_key(btrim(e.match_tipo))] end;
end
$$;

revoke all on function relevo.buckets_of from public;
