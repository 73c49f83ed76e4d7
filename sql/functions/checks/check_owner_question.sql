-- Refuses by name what is wrong with a question about an owner: fields that it does not have, a missing owner, or texts of a wrong length.
create or replace function relevo.check_owner_question(asked jsonb, fields text[] default '{}', owner_needed boolean default true) returns void
  language plpgsql immutable
as $$
declare
  wrong text;
begin
  if jsonb_typeof(asked) is distinct from 'object' then
    perform relevo.refuse('what is asked must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(asked) as k where k <> all (array['owner', 'project'] || fields);
  if wrong is not null then
    perform relevo.refuse(format('there is no field %s', wrong));
  end if;
  perform relevo.check_texts(asked, '{"owner": 200, "project": 200, "category": 100, "locale": 35, "words": 2000, "reason": 300}');
  if owner_needed and asked ->> 'owner' is null then
    perform relevo.refuse('owner must be given');
  end if;
end
$$;

revoke all on function relevo.check_owner_question from public;
