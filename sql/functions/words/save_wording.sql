-- Saves texts as the next version of their type, and returns its number; the same as the current ones are that version. The caller has
-- rendered them with the sample: PostgreSQL cannot. Versions are kept for good, so a day has a limit of new ones, and a version of bytes.
create or replace function relevo.save_wording(given jsonb) returns int
  language plpgsql volatile
as $$
declare
  current relevo.wordings;
begin
  perform relevo.take_turn('wordings:' || (given ->> 'type'));
  select w.* into current from relevo.wordings w where w.event_type = given ->> 'type' order by w.version desc limit 1;
  if (current.default_locale, current.texts, current.arguments) = (given ->> 'default', given -> 'texts', given -> 'arguments') then
    return current.version;
  end if;
  if octet_length(given ->> 'texts') > 120000 or octet_length(given ->> 'arguments') > 120000 then
    perform relevo.refuse('texts must have at most 100000 bytes in all languages together');
  end if;
  if (select count(*) from relevo.wordings w where w.event_type = given ->> 'type' and w.created_at > now() - interval '1 day') >= 100 then
    perform relevo.refuse(format('%s has 100 new versions of its texts since yesterday: wait, or save them under another type', given ->> 'type'));
  end if;
  if (select count(*) from relevo.wordings w where w.created_at > now() - interval '1 day') >= 1000 then
    perform relevo.refuse('1000 new versions of texts were saved since yesterday: wait until some are a day old');
  end if;
  insert into relevo.wordings (event_type, version, default_locale, texts, arguments, zoned, bytes)
  values (given ->> 'type', coalesce(current.version, 0) + 1, given ->> 'default', given -> 'texts', given -> 'arguments',
          (given ->> 'zoned')::boolean, (given ->> 'bytes')::int);
  return coalesce(current.version, 0) + 1;
end
$$;

revoke all on function relevo.save_wording from public;
