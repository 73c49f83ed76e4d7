-- Subscribes to news from now on, or changes what a subscription is for: a field that is left out stays as it is, and null removes webhook and project. Without kinds
-- a new one is for the usual ones, and so is one whose kinds are null. Returns whether it is new.
create or replace function relevo.subscribe_news(subscription jsonb) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  old relevo.news_subscriptions;
  asked text[];
  of_project text;
  is_new boolean;
begin
  if jsonb_typeof(subscription) is distinct from 'object' then
    perform relevo.refuse('a subscription must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(subscription) as k
   where k <> all (array['name', 'kinds', 'project', 'webhook']);
  if wrong is not null then
    perform relevo.refuse(format('a subscription has no field %s', wrong));
  end if;
  perform relevo.check_texts(subscription, '{"name": 50, "project": 200, "webhook": 200}');
  if coalesce(subscription ->> 'name', '') !~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' then
    perform relevo.refuse('name must be letters, digits, dots, dashes and underscores');
  end if;
  perform relevo.check_list(subscription, 'kinds', 10, 50);
  select s.* into old from relevo.news_subscriptions s where s.name = subscription ->> 'name' for update;
  of_project := case when subscription ? 'project' then subscription ->> 'project' else old.project end;
  asked := case
    when coalesce(subscription -> 'kinds', 'null') <> 'null' then array(select distinct k.kind from jsonb_array_elements_text(subscription -> 'kinds') as k(kind) order by 1)
    when old.kinds is not null and not subscription ? 'kinds' then old.kinds
    else array['delivery.failed'] || case when of_project is null then array['event.finished'] end || array['installation.unregistered', 'token.disabled'] end;
  if asked = '{}' or not asked <@ array['event.finished', 'delivery.failed', 'token.disabled', 'installation.unregistered', 'delivery.opened'] then
    perform relevo.refuse('kinds must name some of event.finished, delivery.failed, token.disabled, installation.unregistered and delivery.opened');
  end if;
  if of_project is not null and 'event.finished' = any (asked) then
    perform relevo.refuse('event.finished goes with no project, for an event may reach phones of several');
  end if;
  insert into relevo.news_subscriptions as s (name, kinds, project, webhook)
  values (subscription ->> 'name', asked, of_project, case when subscription ? 'webhook' then subscription ->> 'webhook' else old.webhook end)
  on conflict (name) do update set kinds = excluded.kinds, project = excluded.project, webhook = excluded.webhook
  returning s.xmax = 0 into is_new;
  insert into relevo.news_cursors (subscription) values (subscription ->> 'name') on conflict do nothing;
  return is_new;
end
$$;

revoke all on function relevo.subscribe_news from public;
