-- Makes or changes a category that people may choose: {"category": "offers", "rule": "off", "texts": {"en": {"name": "Offers", "sentence": "…"}}}.
-- The rule and the locales that are not given stay as they are. "quiet": wait, silent or ignore is what its events do in quiet hours, before the rule of their type;
-- null leaves it to the type. Returns whether the category is new.
create or replace function relevo.set_category(asked jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  text_of record;
  is_new boolean;
  longest int;
begin
  if jsonb_typeof(asked) is distinct from 'object' then
    perform relevo.refuse('a category must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(asked) as k where k <> all (array['category', 'rule', 'texts', 'quiet']);
  if wrong is not null then
    perform relevo.refuse(format('a category has no field %s', wrong));
  end if;
  perform relevo.check_texts(jsonb_build_object('category', '') || asked, '{"category": 100}');
  if coalesce(asked ->> 'rule', 'on') <> all (array['on', 'off', 'mandatory']) then
    perform relevo.refuse('rule must be on, off or mandatory');
  end if;
  if coalesce(asked ->> 'quiet', 'wait') <> all (array['wait', 'silent', 'ignore']) then
    perform relevo.refuse(format('quiet must be wait, silent, ignore or null, got %s', relevo.shown(asked -> 'quiet')));
  end if;
  if jsonb_typeof(coalesce(nullif(asked -> 'texts', 'null'), '{}')) <> 'object' or length(asked ->> 'texts') > 100000 then
    perform relevo.refuse('texts must be an object of locales, each with name and sentence, of at most 100000 characters');
  end if;
  for text_of in select t.key as locale, t.value as texts from jsonb_each(coalesce(nullif(asked -> 'texts', 'null'), '{}')) as t(key, value) loop
    if text_of.locale !~ '^[A-Za-z]{2,3}(-[0-9A-Za-z]{2,8}){0,3}$' or jsonb_typeof(text_of.texts) <> 'object' then
      perform relevo.refuse(format('texts must be an object of locales such as es-CL, each an object; %s is not', left(text_of.locale, 50)));
    end if;
    perform relevo.check_texts(jsonb_build_object('name', '') || text_of.texts, '{"name": 100, "sentence": 500}', place => format('texts of %s: ', text_of.locale));
    select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(text_of.texts) as k where k <> all (array['name', 'sentence']);
    if wrong is not null then
      perform relevo.refuse(format('texts of %s have no field %s', text_of.locale, wrong));
    end if;
  end loop;
  insert into relevo.categories as c (category, rule, texts, quiet)
  values (asked ->> 'category', coalesce(asked ->> 'rule', 'on'), coalesce(nullif(asked -> 'texts', 'null'), '{}'), asked ->> 'quiet')
  on conflict (category) do update
     set rule = coalesce(asked ->> 'rule', c.rule), texts = c.texts || excluded.texts,
         quiet = case when asked ? 'quiet' then excluded.quiet else c.quiet end, updated_at = now()
  returning c.xmax = 0, length(c.texts::text) into is_new, longest;
  if longest > 100000 then
    perform relevo.refuse(format('texts of category %s must have at most 100000 characters in all locales together', asked ->> 'category'));
  end if;
  if is_new and (select count(*) from relevo.categories) > 500 then
    perform relevo.refuse('there are 500 categories, which is the most there may be; use one of them');
  end if;
  return is_new;
end
$$;

revoke all on function relevo.set_category from public;
