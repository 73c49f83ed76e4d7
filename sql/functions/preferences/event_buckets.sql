-- Returns the buckets of the index under which preferences that may match an event stand: its topics if it names some, and else everything else
-- it says.
create or replace function relevo.event_buckets(e relevo.notification_events) returns text[]
  language plpgsql immutable
as $$
begin
  if e.match_topics <> '{}' then
    return array(select distinct 'topic:' || t.topic from unnest(e.match_topics) as t(topic));
  end if;
  return array(
    select '*'
    union select 'k:' || w.word from unnest(string_to_array(btrim(coalesce(e.match_words, '')), ' ')) as w(word) where w.word <> ''
    union select 'r:' || r.prefix from unnest(e.match_prefixes) as r(prefix)
    union select 'g:' || e.match_region where e.match_region is not null
    union select 't:' || relevo.text_key(btrim(e.match_tipo)) where e.match_tipo is not null);
end
$$;

revoke all on function relevo.event_buckets from public;
