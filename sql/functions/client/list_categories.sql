-- Returns the categories in one locale, and what an owner chose of each if one is named: {"owner": "user-7", "project": …, "locale": "es-CL"}.
-- `push` and `web` say whether such pushes go to the owner's phones and browsers.
create or replace function relevo.list_categories(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  rules relevo.owner_rules;
begin
  perform relevo.check_owner_question(asked, array['locale'], owner_needed => false);
  select r.* into rules from relevo.owner_rules r where r.owner = asked ->> 'owner' and r.project = coalesce(asked ->> 'project', 'default');
  return coalesce((
    select jsonb_agg(jsonb_build_object('category', c.category, 'name', coalesce(t.texts ->> 'name', c.category), 'sentence', t.texts ->> 'sentence',
             'rule', c.rule, 'quiet', c.quiet, 'push', relevo.is_chosen(rules.choices, 'push', c), 'web', relevo.is_chosen(rules.choices, 'web', c),
             'chosen_at', (select max(n.chosen_at) from relevo.consents n
                            where n.owner = rules.owner and n.project = rules.project and n.category = c.category)) order by c.category)
      from relevo.categories c
      cross join lateral (select relevo.in_locale(c.texts, asked ->> 'locale') as texts) t), '[]');
end
$$;

revoke all on function relevo.list_categories from public;
