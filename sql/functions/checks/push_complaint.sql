-- Returns what is wrong with the fields of a push, in a sentence, or null; a field of null counts as missing.
create or replace function relevo.push_complaint(given jsonb, rules jsonb default relevo.push_fields(), place text default 'push') returns text
  language plpgsql immutable
as $$
declare
  field text;
  value jsonb;
  rule jsonb;
  kind text;
  wrong text;
begin
  if given is null or given in ('{}', 'null') then
    return null;
  end if;
  for field, value in select f.key, f.value from jsonb_each(given) f order by f.key collate "C" loop
    rule := rules -> field;
    if rule is null then
      return format('%s has no field %s; it may have %s', place, left(field, 60), (select string_agg(k, ', ' order by k collate "C") from jsonb_object_keys(rules) k));
    end if;
    kind := rule ->> 'kind';
    case jsonb_typeof(value)
      when 'null' then
        continue;
      when 'string' then
        if kind in ('text', 'text or object') and length(value #>> '{}') between 1 and (rule ->> 'most')::int
           or kind = 'choice' and rule -> 'of' @> value or value = rule -> 'word'
           or kind = 'color' and value #>> '{}' ~ '^#[0-9A-Fa-f]{6}$' then
          continue;
        end if;
      when 'boolean' then
        if kind = 'boolean' then
          continue;
        end if;
      when 'number' then
        if kind in ('number', 'whole number', 'whole number or word') and (value #>> '{}')::numeric between (rule ->> 'low')::numeric and (rule ->> 'high')::numeric
           and (kind = 'number' or (value #>> '{}')::numeric % 1 = 0) then
          continue;
        end if;
      when 'object' then
        if kind in ('object', 'text or object') then
          wrong := relevo.push_complaint(value, rule -> 'fields', format('%s.%s', place, field));
          if wrong is null then
            select format('%s.%s.%s must be given', place, field, needed.name) into wrong
              from jsonb_array_elements_text(rule -> 'needs') with ordinality as needed(name, place_in) where value ->> needed.name is null order by needed.place_in limit 1;
          end if;
          if wrong is not null then
            return wrong;
          end if;
          continue;
        end if;
      when 'array' then
        if kind = 'list' and jsonb_array_length(value) between 1 and (rule ->> 'most')::int and not value @> '[null]' then
          wrong := relevo.push_list_complaint(value, rule, format('%s.%s', place, field));
          if wrong is not null then
            return wrong;
          end if;
          continue;
        end if;
      else
    end case;
    return format('%s.%s must be %s', place, field, case kind
      when 'text' then format('text of 1 to %s characters', rule ->> 'most')
      when 'text or object' then format('text of 1 to %s characters, or a JSON object', rule ->> 'most')
      when 'choice' then 'one of ' || (select string_agg(c, ', ') from jsonb_array_elements_text(rule -> 'of') c)
      when 'boolean' then 'true or false'
      when 'object' then 'a JSON object'
      when 'color' then 'a color such as #2244ff'
      when 'list' then format('a list of 1 to %s entries', rule ->> 'most')
      when 'whole number or word' then format('a whole number between %s and %s, or %s', rule ->> 'low', rule ->> 'high', rule ->> 'word')
      else format('a %s between %s and %s', kind, rule ->> 'low', rule ->> 'high') end);
  end loop;
  return null;
end
$$;

revoke all on function relevo.push_complaint from public;
