-- Notes what an owner chose of a category, and applies it to their phones at once: {"owner": "user-7", "project": …, "category": "offers",
-- "wanted": true, "channel": "push" or "web", else both, "words": what they were shown, "locale": …}. Returns whether something changed.
create or replace function relevo.choose(asked jsonb, face text default 'app') returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  of_owner text := asked ->> 'owner';
  of_project text := coalesce(asked ->> 'project', 'default');
  rule text;
  channels text[] := case when asked ->> 'channel' is null then array['push', 'web'] else array[asked ->> 'channel'] end;
begin
  perform relevo.check_owner_question(asked, array['category', 'wanted', 'channel', 'words', 'locale']);
  perform relevo.check_boolean(asked, 'wanted');
  if asked ->> 'wanted' is null then
    perform relevo.refuse('wanted must be true or false');
  end if;
  if channels[1] <> all (array['push', 'web']) then
    perform relevo.refuse('channel must be push or web, or be left out for both');
  end if;
  select c.rule into rule from relevo.categories c where c.category = asked ->> 'category';
  if not found then
    perform relevo.refuse(format('there is no category %s; make it first, by `relevo category set`', coalesce(left(asked ->> 'category', 100), '')));
  end if;
  if rule = 'mandatory' and asked ->> 'wanted' = 'false' then
    perform relevo.refuse(format('category %s is mandatory: it cannot be refused', asked ->> 'category'));
  end if;
  perform relevo.lock_owner(of_owner);
  insert into relevo.consents (owner, project, category, channel, wanted, face, locale, words)
  select of_owner, of_project, asked ->> 'category', c.channel, (asked ->> 'wanted')::boolean, choose.face, asked ->> 'locale', asked ->> 'words'
    from unnest(channels) as c(channel)
    cross join lateral (select count(*) filter (where n.since) as times, bool_or(n.words is not distinct from asked ->> 'words') filter (where n.since) as is_known
                          from (select n.words, bool_and(n.wanted = (asked ->> 'wanted')::boolean) over (order by n.id desc) as since
                                  from relevo.consents n
                                 where n.owner = of_owner and n.project = of_project and n.category = asked ->> 'category'
                                   and n.channel = c.channel) n) l
   -- said again it is no other choice; the words by which it is confirmed are kept, each once, of twenty at most
   where l.times = 0 or (not l.is_known and l.times < 20);
  if not found then
    return false;
  end if;
  insert into relevo.owner_rules as r (owner, project, choices)
  select of_owner, of_project, jsonb_object_agg(c.channel, jsonb_build_object(asked ->> 'category', asked -> 'wanted')) from unnest(channels) as c(channel)
  on conflict (owner, project) do update
     set choices = r.choices || (select jsonb_object_agg(n.key, coalesce(r.choices -> n.key, '{}') || n.value) from jsonb_each(excluded.choices) as n(key, value));
  perform relevo.apply_to_phones(of_owner, of_project);
  return true;
end
$$;

revoke all on function relevo.choose from public;
