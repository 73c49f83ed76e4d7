-- Refuses attributes that are none, by name: a flat object of at most 50, each a text, a number, a boolean or a list of texts. A null removes one where they are set;
-- an audience asks for values, of which a list names several.
create or replace function relevo.check_attributes(given jsonb, place text, is_audience boolean default false) returns void
  language plpgsql immutable
as $$
declare
  wrong record;
begin
  if jsonb_typeof(given) is distinct from 'object' then
    perform relevo.refuse(format('%s must be an object of attributes, such as {"plan": "pro"}', place));
  end if;
  if given = '{}' and is_audience then
    perform relevo.refuse(format('%s must name an attribute, such as {"plan": "pro"}', place));
  end if;
  if (select count(*) from jsonb_object_keys(given)) > 50 then
    perform relevo.refuse(format('%s must have at most 50 attributes', place));
  end if;
  select a.key into wrong from jsonb_each(given) as a(key, value) where a.key !~ '^[A-Za-z][A-Za-z0-9_.-]{0,49}$' order by 1 limit 1;
  if found then
    perform relevo.refuse(format('%s has an attribute %s: a name is a letter and up to 49 letters, digits, dots, dashes and underscores', place, left(wrong.key, 60)));
  end if;
  select a.key into wrong from jsonb_each(given) as a(key, value)
   where case jsonb_typeof(a.value)
           when 'null' then is_audience
           when 'object' then true
           when 'string' then length(a.value #>> '{}') not between 1 and 200
           when 'number' then abs((a.value #>> '{}')::numeric) >= 1e15
           when 'array' then jsonb_array_length(a.value) not between 1 and 50
                             or exists (select from jsonb_array_elements(a.value) as v(one)
                                         where jsonb_typeof(v.one) <> 'string' or length(v.one #>> '{}') not between 1 and 200)
           else false end
   order by 1 limit 1;
  if found then
    perform relevo.refuse(format('%s.%s must be text of 1 to 200 characters, a number below 10^15, true, false or a list of 1 to 50 texts', place, wrong.key));
  end if;
end
$$;

revoke all on function relevo.check_attributes from public;
