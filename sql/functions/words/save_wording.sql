-- Saves texts as the next version of their type, and returns its number; the same as the current ones are that version. Whoever calls it has
-- rendered them with the sample: PostgreSQL cannot.
create or replace function relevo.save_wording(given jsonb) returns int
  language plpgsql volatile
as $$
declare
  current relevo.wordings;
begin
  perform pg_advisory_xact_lock(hashtextextended('relevo.wordings:' || (given ->> 'type'), 0));
  select w.* into current from relevo.wordings w where w.event_type = given ->> 'type' order by w.version desc limit 1;
  if (current.default_locale, current.texts, current.arguments) = (given ->> 'default', given -> 'texts', given -> 'arguments') then
    return current.version;
  end if;
  insert into relevo.wordings (event_type, version, default_locale, texts, arguments, zoned, bytes)
  values (given ->> 'type', coalesce(current.version, 0) + 1, given ->> 'default', given -> 'texts', given -> 'arguments',
          (given ->> 'zoned')::boolean, (given ->> 'bytes')::int);
  return coalesce(current.version, 0) + 1;
end
$$;

revoke all on function relevo.save_wording from public;
