-- Refuses by name what is wrong with a choice: unknown fields, a missing value, a category that does not exist or cannot be refused.
create or replace function relevo.check_choice(asked jsonb) returns void
  language plpgsql stable
as $$
declare
  rule text;
begin
  perform relevo.check_owner_question(asked, array['category', 'wanted', 'channel', 'words', 'locale']);
  perform relevo.check_boolean(asked, 'wanted');
  if asked ->> 'wanted' is null then
    perform relevo.refuse('wanted must be true or false');
  end if;
  if asked ->> 'channel' <> all (array['push', 'web']) then
    perform relevo.refuse('channel must be push or web, or be left out for both');
  end if;
  select c.rule into rule from relevo.categories c where c.category = asked ->> 'category';
  if not found then
    perform relevo.refuse(format('there is no category %s; make it first, by `relevo apply` or relevo.set_category', coalesce(left(asked ->> 'category', 100), '')));
  end if;
  if rule = 'mandatory' and asked ->> 'wanted' = 'false' then
    perform relevo.refuse(format('category %s is mandatory: it cannot be refused', asked ->> 'category'));
  end if;
end
$$;

revoke all on function relevo.check_choice from public;
