-- Refuses an event that does not name its audience in exactly one way.
create or replace function relevo.check_audience(event jsonb) returns void
  language plpgsql stable
as $$
declare
  wrong text;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  if coalesce(event -> 'audience', 'null') = 'null' then
    perform relevo.refuse('audience must be given: everyone, installations, owners, matching or attributes');
  end if;
  if event ->> 'audience' <> all (array['everyone', 'installations', 'owners', 'matching', 'attributes']) then
    perform relevo.refuse('audience must be everyone, installations, owners, matching or attributes');
  end if;
  for wrong in select k from unnest(array['installations', 'owners']) as k
                where (event ->> 'audience' = k) <> (coalesce(jsonb_typeof(event -> k), 'null') = 'array') loop
    perform relevo.refuse(format('%s must be a list exactly when audience is %s', wrong, wrong));
  end loop;
  if event ->> 'audience' = 'installations' and jsonb_array_length(event -> 'installations') > 100000 then
    perform relevo.refuse('installations must name at most 100000 of them');
  end if;
  select i.each into wrong from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i(each)
   where coalesce(i.each, '') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' limit 1;
  if found then
    perform relevo.refuse(format('installations must be UUIDs, got %s', coalesce(left(wrong, 60), 'null')));
  end if;
  perform relevo.check_list(event, 'owners', 100000, 200);
  perform relevo.check_list(event, 'topics', 100, 100);
  if coalesce(nullif(event -> 'topics', 'null'), '[]') <> '[]' and event ->> 'audience' <> 'matching' then
    perform relevo.refuse('topics are looked for in preferences: with topics, audience must be matching');
  end if;
  if event ->> 'audience' = 'matching' and coalesce(jsonb_typeof(event -> 'matching'), 'null') <> 'object'
     and coalesce(nullif(event -> 'topics', 'null'), '[]') = '[]' then
    perform relevo.refuse('matching or topics must say what the event is about when audience is matching');
  end if;
  if event ->> 'audience' = 'attributes' and event ->> 'where' is null then
    perform relevo.refuse('where must name attributes when audience is attributes');
  end if;
  if event ->> 'where' is not null then
    perform relevo.check_attributes(event -> 'where', 'where', is_audience => true);
  end if;
  if event ->> 'audience' <> 'matching' and matching <> '{}' then
    perform relevo.refuse('matching says for whom an event is: with matching, audience must be matching');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(matching) as k
   where k <> all (array['rubros', 'region', 'tipo', 'monto', 'moneda', 'text']);
  if wrong is not null then
    perform relevo.refuse(format('matching has no field %s', wrong));
  end if;
  perform relevo.check_list(matching, 'rubros', 2000, 100, 'matching.');
  perform relevo.check_texts(matching, '{"region": 200, "tipo": 100, "text": 20000}', 0, 'matching.');
  perform relevo.check_number(matching, 'monto', 0, 999999999999999999, place => 'matching.');
  if coalesce(nullif(matching -> 'moneda', 'null') #>> '{}', 'CLP') !~ '^[A-Z]{3}$' then
    perform relevo.refuse('matching.moneda must be a currency of three capital letters, such as CLP');
  end if;
end
$$;

revoke all on function relevo.check_audience from public;
