-- Returns what an event says to a reader of a locale, of its texts by locale; null if it has no text of that language.
create or replace function relevo.text_in(texts jsonb, locale text) returns jsonb
  language sql immutable
return case when texts is not null and locale is not null then (
  select t.value from unnest(relevo.locale_chain(locale)) with ordinality as c(name, place)
    join jsonb_each(texts) as t on lower(t.key) = c.name
   order by c.place limit 1) end;

revoke all on function relevo.text_in from public;
