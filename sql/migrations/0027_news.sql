-- needs relevo 0.1.0
-- News back to the app: what came of events, deliveries and phones, for whoever subscribed to it.
--
-- What decides an outcome writes it into news_inbox in the same transaction: triggers see to that, whoever decides it and in whatever
-- version. The reaper then gives each subscription its share, numbered without gaps: a transaction that commits late gets a later number,
-- so that a reader who goes on behind the last number it saw misses nothing. Nothing is written for what nobody asked for.

create table relevo.news_subscriptions (
  name text primary key check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$'),
  id uuid not null unique default gen_random_uuid(),
  kinds text[] not null check (cardinality(kinds) > 0
    and kinds <@ array['event.finished', 'delivery.failed', 'token.disabled', 'installation.unregistered']),
  project text check (length(project) between 1 and 200),
  webhook text check (length(webhook) between 1 and 200),
  paused_at timestamptz,
  head bigint not null default 0 check (head >= 0),
  tail bigint not null default 0 check (tail between 0 and head),
  dropped bigint not null default 0 check (dropped >= 0),
  dropped_at timestamptz,
  created_at timestamptz not null default now(),
  check (project is null or 'event.finished' <> all (kinds))
);

comment on table relevo.news_subscriptions is 'Who asked for which news. Numbers up to head were given, those up to tail are gone.';
comment on column relevo.news_subscriptions.webhook is 'The name in WEBHOOKS_FILE of the address they are sent to; null: they are read.';
comment on column relevo.news_subscriptions.dropped is 'How many were dropped unread: the backlog was full, or they were too old.';

-- Apart from the subscription: an app that moves it in a long transaction must not keep the reaper waiting.
create table relevo.news_cursors (
  subscription text primary key references relevo.news_subscriptions (name) on delete cascade,
  position bigint not null default 0 check (position >= 0)
);

comment on table relevo.news_cursors is 'Up to which number a subscription''s news were read and acknowledged, or sent on their way.';

create table relevo.news_inbox (
  id bigint generated always as identity primary key,
  at timestamptz not null,
  kind text not null,
  project text,
  event_id bigint,
  delivery_id bigint,
  installation_id uuid,
  data jsonb not null
);

comment on table relevo.news_inbox is 'News as they were decided, not yet given to the subscriptions. They hold no token and no person.';

create table relevo.news (
  subscription text not null references relevo.news_subscriptions (name) on delete cascade,
  position bigint not null,
  at timestamptz not null,
  kind text not null,
  project text,
  event_id bigint,
  delivery_id bigint,
  installation_id uuid,
  data jsonb not null,
  primary key (subscription, position)
);

comment on table relevo.news is 'The news of each subscription, numbered without gaps.';

create table relevo.news_events (
  id bigint generated always as identity primary key,
  event_id bigint not null
);
create index news_events_event on relevo.news_events (event_id);

comment on table relevo.news_events is 'Events that changed and may have finished; the reaper looks, if somebody wants to know.';

create function relevo.is_news(kind text) returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$ select exists (select from relevo.news_subscriptions s where is_news.kind = any (s.kinds)) $$;

create function relevo.note_dead_letters() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('delivery.failed') then
    insert into relevo.news_inbox (at, kind, project, event_id, delivery_id, installation_id, data)
    select c.died_at, 'delivery.failed', regexp_replace(c.project, '^.*?::', ''), c.event_id, c.delivery_id, d.installation_id,
           jsonb_build_object('event_type', d.event_type, 'error_code', c.error_code, 'attempts', d.attempt_count)
      from come c
      cross join lateral (select d.installation_id, d.event_type, d.attempt_count from relevo.notification_deliveries d
                           where d.event_day = c.event_day and d.id = c.delivery_id offset 0) d
     where d.event_type <> 'relevo.news' -- else a receiver that fails would get ever more
     order by c.event_day, c.delivery_id;
  end if;
  return null;
end
$$;

create trigger note_news after insert on relevo.dead_letters
  referencing new table as come for each statement execute function relevo.note_dead_letters();

create function relevo.note_phone() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  kind text := tg_argv[0];
begin
  if relevo.is_news(kind) and not old.for_news then
    insert into relevo.news_inbox (at, kind, project, installation_id, data)
    values (now(), kind, old.project, old.installation_id,
            jsonb_build_object('reason', case when tg_op = 'DELETE' then 'forgotten' when kind = 'token.disabled' then new.invalid_reason
                                              else 'unregistered' end));
  end if;
  return null;
end
$$;

-- A phone that only gets news is none of an app's.
alter table relevo.device_installations add column for_news boolean not null default false;

comment on column relevo.device_installations.for_news is 'An address that gets news only: what is sent to everyone is not sent there.';

create trigger note_disabled after update on relevo.device_installations for each row
  when (old.invalidated_at is null and new.invalidated_at is not null) execute function relevo.note_phone('token.disabled');
create trigger note_unregistered after update on relevo.device_installations for each row
  when (old.active and not new.active) execute function relevo.note_phone('installation.unregistered');
create trigger note_forgotten after delete on relevo.device_installations for each row
  when (old.active) execute function relevo.note_phone('installation.unregistered');

create function relevo.note_event() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('event.finished') then
    insert into relevo.news_events (event_id) values (new.id);
  end if;
  return null;
end
$$;

create trigger note_ended after update on relevo.notification_events for each row
  when (new.event_type <> 'relevo.news' and new.state in ('fanned', 'cancelled', 'completed')
        and (new.state <> old.state or (old.swept_at is null and new.swept_at is not null)))
  execute function relevo.note_event();

create function relevo.note_progress() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('event.finished') then
    insert into relevo.news_events (event_id) select distinct g.event_id from gone g;
  end if;
  return null;
end
$$;

-- When changes are folded into an event's sums, and not for every change: an event of half a million deliveries is looked at a few times.
create trigger note_news after delete on relevo.event_progress_deltas
  referencing old table as gone for each statement execute function relevo.note_progress();

create or replace function relevo.slice_targets(event_id bigint, kind text, buckets text[], after_seq bigint, upto_seq bigint)
  returns table (installation_id uuid, project text, provider text)
  language sql stable
as $$
  select i.installation_id, i.project, i.provider
    from relevo.notification_events e
    cross join (
      select distinct x.seq
        from relevo.notification_events e
        join relevo.preference_index x on x.bucket = any (slice_targets.buckets) and x.seq > after_seq and x.seq <= upto_seq
       where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
         and (x.sure or exists (select from relevo.notification_preferences p
                                  where p.installation_id = x.installation_id and p.name = x.name
                                    and relevo.preference_matches(p, e)))) c
    join relevo.device_installations i on i.seq = c.seq and i.seq > after_seq and i.seq <= upto_seq
   where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
     and relevo.may_receive(i) and (e.category is null or e.category <> all (i.opt_outs))
  union all
  select i.installation_id, i.project, i.provider
    from relevo.notification_events e
    join relevo.device_installations i on i.seq > after_seq and i.seq <= upto_seq
   where slice_targets.kind = 'everyone' and e.id = slice_targets.event_id and not i.for_news
     and relevo.may_receive(i) and (e.category is null or e.category <> all (i.opt_outs))
  union all
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    join relevo.event_audience a on a.event_id = e.id
    -- looked up one by one: few are named, and a walk along all phones would find the newest last
    cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) n
   where slice_targets.kind = 'installations' and e.id = slice_targets.event_id
     and (n.phone).seq > after_seq and (n.phone).seq <= upto_seq
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
$$;

-- Subscribes to news from now on, or changes what a subscription asks for; tells whether it is new.
create function relevo.subscribe_news(subscription jsonb) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  asked text[];
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
  asked := array(select distinct k.kind from jsonb_array_elements_text(nullif(subscription -> 'kinds', 'null')) as k(kind) order by 1);
  if asked = '{}' or not asked <@ array['event.finished', 'delivery.failed', 'token.disabled', 'installation.unregistered'] then
    perform relevo.refuse('kinds must name some of event.finished, delivery.failed, token.disabled and installation.unregistered');
  end if;
  if subscription ->> 'project' is not null and 'event.finished' = any (asked) then
    perform relevo.refuse('event.finished goes with no project, for an event may reach phones of several');
  end if;
  insert into relevo.news_subscriptions as s (name, kinds, project, webhook)
  values (subscription ->> 'name', asked, subscription ->> 'project', subscription ->> 'webhook')
  on conflict (name) do update set kinds = excluded.kinds, project = excluded.project, webhook = excluded.webhook
  returning s.xmax = 0 into is_new;
  insert into relevo.news_cursors (subscription) values (subscription ->> 'name') on conflict do nothing;
  return is_new;
end
$$;

-- Reads the next news of a subscription, behind a number or behind what it has acknowledged; whose phone and which key, as far as still known.
create function relevo.read_news(of_subscription text, after bigint default null, most int default 100)
  returns table (news_position bigint, at timestamptz, kind text, project text, event_id bigint, event_key text, delivery_id bigint,
                 installation_id uuid, owner text, data jsonb)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  behind bigint;
begin
  if most is null or most not between 1 and 1000 then
    perform relevo.refuse('limit must be between 1 and 1000');
  end if;
  select greatest(coalesce(read_news.after, c.position), s.tail) into behind
    from relevo.news_subscriptions s join relevo.news_cursors c on c.subscription = s.name
   where s.name = of_subscription;
  if not found then
    perform relevo.refuse(format('there is no subscription %s; subscribe first', left(of_subscription, 50)));
  end if;
  return query
  select n.position, n.at, n.kind, n.project, n.event_id, e.event_key, n.delivery_id, n.installation_id, i.owner, n.data
    from relevo.news n
    left join relevo.notification_events e on e.id = n.event_id
    left join relevo.device_installations i on i.installation_id = n.installation_id
   where n.subscription = of_subscription and n.position > behind
     and not exists (select from relevo.news_subscriptions s where s.name = of_subscription and s.paused_at is not null)
   order by n.position
   limit most;
end
$$;

-- Notes that a subscription's news were dealt with up to a number; false if they had been before.
create function relevo.acknowledge_news(of_subscription text, upto bigint) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known relevo.news_subscriptions;
begin
  select * into known from relevo.news_subscriptions s where s.name = of_subscription;
  if not found then
    perform relevo.refuse(format('there is no subscription %s; subscribe first', left(of_subscription, 50)));
  end if;
  if known.webhook is not null then
    perform relevo.refuse(format('the news of %s are sent to its webhook, and acknowledged by that', of_subscription));
  end if;
  if upto is null or upto not between 0 and known.head then
    perform relevo.refuse(format('position must be one that was read, at most %s', known.head));
  end if;
  update relevo.news_cursors c set position = upto where c.subscription = of_subscription and c.position < upto;
  return found;
end
$$;

create or replace function relevo.grant_door(role_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  door text;
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  foreach door in array array['enqueue(jsonb)', 'enqueue_many(jsonb)', 'cancel(bigint, text)', 'complete(bigint, text)',
      'complete_installation(uuid)', 'delete_events(bigint[])', 'get_event(bigint)', 'register_installation(jsonb)', 'set_preference(uuid, text, jsonb)',
      'subscribe_news(jsonb)', 'read_news(text, bigint, int)', 'acknowledge_news(text, bigint)'] loop
    execute format('grant execute on function relevo.%s to %I', door, role_name);
  end loop;
end
$$;

revoke all on function relevo.is_news(text), relevo.note_dead_letters(), relevo.note_phone(), relevo.note_event(), relevo.note_progress(),
  relevo.subscribe_news(jsonb), relevo.read_news(text, bigint, int), relevo.acknowledge_news(text, bigint) from public;
