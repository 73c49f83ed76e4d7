-- needs relevo 0.2.0
-- Many events at once: enqueue_many looks at, writes and answers them together, and spends a moment's thought on each that is plainly right.

-- Every prefix of every code: a preference's rubro is one of them exactly if it is a prefix of a code. Most events have none.
create or replace function relevo.prefixes(codes text[]) returns text[] language plpgsql immutable strict parallel safe
as $$
begin
  if codes = '{}' then
    return '{}';
  end if;
  return array(select distinct left(c.code, n.n) from unnest(codes) as c(code) cross join generate_series(1, 20) as n(n)
                where n.n <= length(c.code));
end
$$;

-- The key by which an event is known once nobody may learn its own: a hash, which can be looked up and not be read.
create or replace function relevo.hidden_key(event_type text, event_key text) returns text language sql immutable
  return case when event_key ~ '^sha256:[0-9a-f]{64}$' then event_key
              else 'sha256:' || encode(sha256(convert_to(event_type || chr(10) || event_key, 'UTF8')), 'hex') end;

-- Tells of the usual event that nothing is wrong with it, in one expression. Of any other it says nothing: check_event finds the words.
-- What is rendered of an event is at most 500 bytes longer than the event itself.
create function relevo.is_plain_event(event jsonb) returns boolean language plpgsql immutable
as $$
begin
  return jsonb_typeof(event) = 'object'
     and event - array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'category', 'lane', 'at_most_once',
                       'scheduled_at', 'deadline_at', 'ttl_s'] = '{}'
     and jsonb_typeof(event -> 'type') = 'string' and length(event ->> 'type') <= 100 and btrim(event ->> 'type') <> ''
     and jsonb_typeof(event -> 'key') = 'string' and length(event ->> 'key') <= 300 and btrim(event ->> 'key') <> ''
     and jsonb_typeof(event -> 'title') = 'string' and length(event ->> 'title') <= 500 and btrim(event ->> 'title') <> ''
     and coalesce(jsonb_typeof(event -> 'body') in ('string', 'null') and length(event ->> 'body') <= 2000, event ->> 'body' is null)
     and coalesce(jsonb_typeof(event -> 'category') in ('string', 'null') and length(event ->> 'category') between 1 and 100, event ->> 'category' is null)
     and coalesce(jsonb_typeof(event -> 'data') in ('object', 'null'), true)
     and coalesce(jsonb_typeof(event -> 'push') in ('object', 'null'), true)
     and coalesce(event ->> 'lane' in ('urgent', 'bulk'), true)
     and coalesce(jsonb_typeof(event -> 'at_most_once') in ('boolean', 'null'), true)
     and case when event ->> 'ttl_s' is null then true
              when jsonb_typeof(event -> 'ttl_s') <> 'number' then false
              else (event ->> 'ttl_s')::numeric between 1 and 2419200 and (event ->> 'ttl_s')::numeric % 1 = 0 end
     and case event ->> 'audience'
              when 'installations' then
                case when jsonb_typeof(event -> 'installations') = 'array' then jsonb_array_length(event -> 'installations') <= 1000 end
                and event ->> 'installations' ~* '^\["[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"(, "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")*\]$'
              when 'everyone' then event ->> 'installations' is null
              else false end
     and octet_length(event::text) <= 3400;
end
$$;

-- Checks an event as given, and complains about the first thing that is wrong, by name.
create or replace function relevo.check_event(event jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  if relevo.is_plain_event(event) then
    return;
  end if;
  if jsonb_typeof(event) is distinct from 'object' then
    perform relevo.refuse('an event must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(event) as k
   where k <> all (array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'matching', 'category', 'lane',
                         'at_most_once', 'scheduled_at', 'deadline_at', 'ttl_s', 'licitacion_id']);
  if wrong is not null then
    perform relevo.refuse(format('an event has no field %s', wrong));
  end if;
  for wrong in select k from unnest(array['type', 'key', 'title']) as k where coalesce(btrim(event ->> k), '') = '' loop
    perform relevo.refuse(format('%s must be given', wrong));
  end loop;
  perform relevo.check_texts(event, '{"type": 100, "key": 300, "title": 500, "category": 100}');
  perform relevo.check_texts(event, '{"body": 2000}', 0);
  for wrong in select k from unnest(array['data', 'push', 'matching']) as k
                where event ? k and event -> k <> 'null' and jsonb_typeof(event -> k) <> 'object' loop
    perform relevo.refuse(format('%s must be a JSON object', wrong));
  end loop;
  if coalesce(event ->> 'audience', '') <> all (array['everyone', 'installations', 'matching']) then
    perform relevo.refuse('audience must be everyone, installations or matching');
  end if;
  if (event ->> 'audience' = 'installations') <> (coalesce(jsonb_typeof(event -> 'installations'), 'null') = 'array') then
    perform relevo.refuse('installations must be a list exactly when audience is installations');
  end if;
  if event ->> 'audience' = 'installations' and jsonb_array_length(event -> 'installations') not between 1 and 100000 then
    perform relevo.refuse('installations must name between 1 and 100000 of them');
  end if;
  select i.each into wrong from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i(each)
   where coalesce(i.each, '') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' limit 1;
  if found then
    perform relevo.refuse(format('installations must be UUIDs, got %s', coalesce(left(wrong, 60), 'null')));
  end if;
  if event ->> 'audience' = 'matching' and coalesce(jsonb_typeof(event -> 'matching'), 'null') <> 'object' then
    perform relevo.refuse('matching must say what the event is about when audience is matching');
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
  if coalesce(event ->> 'lane', 'bulk') <> all (array['urgent', 'bulk']) then
    perform relevo.refuse('lane must be urgent or bulk');
  end if;
  perform relevo.check_boolean(event, 'at_most_once');
  perform relevo.check_number(event, 'ttl_s', 1, 2419200, whole => true);
  perform relevo.check_number(event, 'licitacion_id', 1, 9223372036854775807, whole => true);
  if relevo.push_bytes(event ->> 'title', coalesce(event ->> 'body', ''), coalesce(nullif(event -> 'data', 'null'), '{}'),
                       coalesce(nullif(event -> 'push', 'null'), '{}')) > 4096 then
    perform relevo.refuse('title, body, data and push together must fit into 4096 bytes once rendered');
  end if;
end
$$;

-- A time of an event, or a complaint that names it; a time without its zone would mean something else in every session.
create or replace function relevo.event_time(event jsonb, name text) returns timestamptz language plpgsql stable
as $$
declare
  given timestamptz;
begin
  if jsonb_typeof(event -> name) is not distinct from 'null' or not event ? name then
    return null;
  end if;
  if event ->> name ~* '^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?(Z|[+-](0\d|1[0-4])(:?[0-5]\d)?)$' then
    given := (event ->> name)::timestamptz; -- there is such a day in every month: without a subtransaction
  else
    begin
      given := (event ->> name)::timestamptz;
    exception when others then
      given := null;
    end;
  end if;
  if given is null or event ->> name !~* '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$' then
    perform relevo.refuse(format('%s must be a time with its zone, such as 2026-11-15T09:00:00Z, got %s', name, left(event ->> name, 60)));
  end if;
  if given not between '2000-01-01Z' and '2200-01-01Z' then
    perform relevo.refuse(format('%s must lie between the years 2000 and 2200, got %s', name, given));
  end if;
  return given;
end
$$;

-- Returns a new event's deadline, unless it has passed or lies before the event itself.
create function relevo.check_deadline(until timestamptz, at timestamptz) returns timestamptz language plpgsql stable
as $$
begin
  if until <= greatest(at, now()) then
    perform relevo.refuse(format('deadline_at must lie after now and after scheduled_at, got %s', until));
  end if;
  return until;
end
$$;

-- Writes those of some checked events that are not known yet, in their order, and tells of each in order. One without an id was written
-- by somebody else meanwhile, or stands here twice: only a new statement sees which it is.
create function relevo.write_events(events jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language plpgsql volatile set jit = off
as $$
begin
  return query
  with given as materialized (
    select g.ord, g.event, g.event ->> 'type' as event_type,
           -- its own, and the one by which it is known if it was personal and is old or forgotten
           array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
           encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex') as hash,
           coalesce(case when g.event ? 'scheduled_at' then relevo.event_time(g.event, 'scheduled_at') end, now()) as at,
           case when g.event ? 'deadline_at' then relevo.event_time(g.event, 'deadline_at') end as until
      from jsonb_array_elements(events) with ordinality as g(event, ord)
  ), looked_up as materialized (
    select g.*, coalesce(n.id, k.event_id) as known_id, nullif(coalesce(n.content_hash, k.content_hash), '') = g.hash as same_hash,
           row_number() over (partition by g.event_type, g.keys[1] order by g.ord) as nth
      from given g
      left join lateral (select n.id, n.content_hash from relevo.notification_events n
                          where n.event_type = g.event_type and n.event_key = any (g.keys) limit 1) n on true
      left join lateral (select k.event_id, k.content_hash from relevo.event_keys k
                          where n.id is null and k.event_type = g.event_type and k.event_key = any (g.keys) limit 1) k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null and l.nth = 1 then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, m.event ->> 'title', coalesce(m.event ->> 'body', ''),
           coalesce(nullif(m.event -> 'data', 'null'), '{}'), coalesce(nullif(m.event -> 'push', 'null'), '{}'),
           m.event ->> 'audience', m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           relevo.check_deadline(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at),
           case when m.event #> '{matching,rubros}' <> 'null' then array(select jsonb_array_elements_text(m.event #> '{matching,rubros}')) else '{}' end,
           relevo.region_key(m.event #>> '{matching,region}'), m.event #>> '{matching,tipo}',
           (m.event #>> '{matching,monto}')::numeric, m.event #>> '{matching,moneda}', relevo.words(m.event #>> '{matching,text}'), m.hash
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null
     order by m.ord -- in the order of all who write the same: nobody waits crosswise
    on conflict (event_type, event_key) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id)
    select m.new_id, i.installation::uuid
      from numbered m
      cross join lateral jsonb_array_elements_text(nullif(m.event -> 'installations', 'null')) as i(installation)
     where (m.new_id in (select w.id from made w)) is true -- looked up in a hash: "is true" keeps it from becoming a join
    on conflict do nothing
  )
  select coalesce(m.known_id, case when (m.new_id in (select w.id from made w)) is true then m.new_id end),
         m.known_id is null, m.known_id is null or m.same_hash
    from numbered m
   order by m.ord;
end
$$;

-- Enqueues events, the app's commit decides; one row each, in order: its id, whether it is new, whether an old one says the same (null
-- if that is not known any more).
create or replace function relevo.enqueue_many(events jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
  news boolean[];
  sames boolean[];
  one record;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  perform relevo.check_event(e) from jsonb_array_elements(events) as e;
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content) into ids, news, sames from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select * from unnest(ids, news, sames);
end
$$;

revoke all on function relevo.is_plain_event(jsonb), relevo.check_deadline(timestamptz, timestamptz), relevo.write_events(jsonb) from public;

-- Fans out small personal events, which the caller has picked and locked, from beginning to end, and names their deliveries' events and
-- phones if they are watched. Nothing at all if today's month is sealed.
create function relevo.fan_out_events_1(of_events bigint[], watched boolean, given_at timestamptz)
  returns table (created int, events bigint[], installations uuid[])
  language plpgsql volatile
as $$
declare
  at timestamptz := coalesce(given_at, now());
  today date := (at at time zone 'UTC')::date;
begin
  perform relevo.ensure_partitions(today, 1);
  if relevo.hold_open(array[today]) = '{}' then
    return;
  end if;
  return query
  with targets as materialized ( -- an event that reaches nobody stands here once, without a phone
    select g.place, e.id as event_id, e.event_type, e.lane, e.at_most_once, e.deadline_at, t.installation_id, t.provider, t.project
      from unnest(of_events) with ordinality as g(id, place)
      cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
      left join lateral (
        select (n.phone).installation_id, (n.phone).provider, relevo.sending_project((n.phone).provider, (n.phone).project) as project
          from relevo.event_audience a
          cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) n
         where a.event_id = e.id and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
           and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                             join relevo.notification_events o on o.id = f.former_event_id
                             join relevo.notification_deliveries d
                               on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = (n.phone).installation_id
                            where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))) t on true
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select today, t.event_id, t.installation_id, t.event_type, t.provider, t.project, t.lane, t.at_most_once, t.deadline_at, now()
      from targets t
     where t.installation_id is not null
     order by t.place
    returning id, notification_event_id, installation_id, event_type, project, lane, created_at
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select m.project, m.lane, at, today, m.notification_event_id, m.event_type, m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
      from made m
     group by m.project, m.lane, m.notification_event_id, m.event_type, m.created_at
     order by min(m.id)
  ), counted as materialized (
    select t.event_id, count(t.installation_id)::int as deliveries from targets t group by t.event_id
  ), fanned as (
    update relevo.notification_events e
       set state = 'fanned', event_day = today, fanout_started_at = at, fanout_finished_at = at, updated_at = at,
           fanout_upto = u.seq, fanout_cursor = u.seq, targets_selected = c.deliveries, deliveries_created = c.deliveries
      from counted c
      cross join (select coalesce(max(i.seq), 0) as seq from relevo.device_installations i) u
     where e.id = c.event_id
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select c.event_id, 'pending', c.deliveries from counted c where c.deliveries > 0
  )
  select count(*)::int, case when watched then array_agg(m.notification_event_id) end, case when watched then array_agg(m.installation_id) end from made m;
end
$$;

revoke all on function relevo.fan_out_events_1(bigint[], boolean, timestamptz) from public;
