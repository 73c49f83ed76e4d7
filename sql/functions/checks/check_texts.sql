-- Refuses the first field that is not text of a fitting length, by name; limits are like {"title": 500}.
create or replace function relevo.check_texts(given jsonb, limits jsonb, fewest int default 1, place text default '') returns void
  language plpgsql immutable
as $$
declare
  wrong text;
begin
  for wrong in select l.key from jsonb_each_text(limits) as l(key, most)
                where coalesce(given -> l.key, 'null') <> 'null'
                  and (jsonb_typeof(given -> l.key) <> 'string' or length(given ->> l.key) not between fewest and l.most::int) loop
    perform relevo.refuse(format('%s%s must be text of %s to %s characters', place, wrong, fewest, limits ->> wrong));
  end loop;
end
$$;

revoke all on function relevo.check_texts from public;
