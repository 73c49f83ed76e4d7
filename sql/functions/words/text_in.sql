-- Returns what an event says to a reader of a locale, of its texts by locale, or else in that of the project; null if it has no text of either language.
create or replace function relevo.text_in(texts jsonb, locale text, project_locale text default null) returns jsonb
  language sql immutable
return case when texts is not null then (
  select t.value from unnest(relevo.locale_chain(locale) || relevo.locale_chain(project_locale)) with ordinality as c(name, place)
    join jsonb_each(texts) as t on lower(t.key) = c.name
   order by c.place limit 1) end;

revoke all on function relevo.text_in from public;
