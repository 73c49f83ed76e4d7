-- Returns what an app lets the push of a batch say, with the numbers and names that it asks for.
create or replace function relevo.batch_text(said text, total int, names text[]) returns text
  language sql immutable
  return replace(replace(replace(replace(replace(replace(said, '{count}', total::text), '{others}', (total - 1)::text), '{more}', greatest(total - 3, 0)::text),
                         '{first}', coalesce(names[1], '')), '{second}', coalesce(names[2], '')), '{third}', coalesce(names[3], ''));

revoke all on function relevo.batch_text from public;
