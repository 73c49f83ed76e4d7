-- Returns the texts of the nearest locale: es-CL, then es-419, then es, then English, then any.
create or replace function relevo.in_locale(texts jsonb, locale text) returns jsonb language sql immutable
as $$
  select coalesce(texts -> locale, case when locale like 'es-%' then texts -> 'es-419' end, texts -> split_part(locale, '-', 1), texts -> 'en',
                  (select t.value from jsonb_each(texts) as t(key, value) order by t.key limit 1), '{}')
$$;

revoke all on function relevo.in_locale from public;
