-- Returns the hash of an event's content without its project, in which its key is looked up, and without its trace. The content of an event for
-- some phones or owners is hashed as it came: its row decides when hashes differ, and the hash goes with the row. All other hashes are kept for good, so in one form: empty
-- and missing fields are equal, and so are other orders of keys and of lists that are sets, and other spellings of a number or a time.
create or replace function relevo.content_hash(event jsonb, at timestamptz, until timestamptz) returns text
  language plpgsql immutable
as $$
declare
  said jsonb := jsonb_strip_nulls(case when event ?| array['on_conflict', 'project', 'traceparent'] then event - array['on_conflict', 'project', 'traceparent'] else event end);
begin
  if said ->> 'audience' not in ('installations', 'owners') then
    said := relevo.trim_numbers('{"title": "", "body": "", "data": {}, "push": {}}'::jsonb || said);
    if said ? 'topics' then
      said := said || relevo.sort_list(said, 'topics');
    end if;
    if said -> 'matching' ? 'rubros' then
      said := jsonb_set(said, '{matching}', (said -> 'matching') || relevo.sort_list(said -> 'matching', 'rubros'));
    end if;
    if said ? 'where' then
      said := said || jsonb_build_object('where', relevo.sort_lists(said -> 'where'), 'audience', relevo.audience_kind(said));
    end if;
    if said ? 'scheduled_at' then
      said := said || jsonb_build_object('scheduled_at', extract(epoch from at));
    end if;
    if said ? 'deadline_at' then
      said := said || jsonb_build_object('deadline_at', extract(epoch from until));
    end if;
  end if;
  return encode(sha256(convert_to(said::text, 'UTF8')), 'hex');
end
$$;

revoke all on function relevo.content_hash from public;
