-- Returns each value of some attributes as one word, such as plan="pro", and each value of a list as a word of its own. A number has its shortest
-- form, rounded to twenty digits after the point: the index has no room for thousands, and the phone's row decides.
create or replace function relevo.attribute_words(attributes jsonb) returns text[]
  language sql immutable
as $$
  select array_agg(distinct a.key || '=' || case jsonb_typeof(v.value) when 'number' then trim_scale(round((v.value #>> '{}')::numeric, 20))::text else v.value::text end)
    from jsonb_each(attributes) as a(key, value)
    cross join lateral jsonb_array_elements(case jsonb_typeof(a.value) when 'array' then a.value else jsonb_build_array(a.value) end) as v(value)
$$;

revoke all on function relevo.attribute_words from public;
