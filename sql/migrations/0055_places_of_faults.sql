-- needs relevo 0.2.0
-- Whoever hands in many events or installations by SQL is told which of them is refused, counted from 0: events.3: lane must be urgent or bulk.
-- It is looked for once one was refused; where all are good nothing more is done.

-- Refuses one of many events, or the only one, of which nobody asks which.
create function relevo.refuse_event(place bigint, complaint text) returns void
  language plpgsql
as $$ begin perform relevo.refuse(case when place is null then complaint else format('events.%s: %s', place - 1, complaint) end); end $$;

-- Refuses the first of some events with which anything is wrong, by its place.
create function relevo.check_events(events jsonb) returns void
  language plpgsql stable
as $$
declare
  one jsonb;
  place bigint;
begin
  if jsonb_array_length(events) = 1 then
    perform relevo.check_event(events -> 0);
    return;
  end if;
  begin
    perform relevo.check_event(e) from jsonb_array_elements(events) as e;
    return;
  exception when invalid_parameter_value then
    null; -- which one is found below
  end;
  begin
    for one, place in select e.one, e.place from jsonb_array_elements(events) with ordinality as e(one, place) loop
      perform relevo.check_event(one);
    end loop;
  exception when invalid_parameter_value then
    perform relevo.refuse_event(place, sqlerrm);
  end;
end
$$;

-- Refuses the first of some installations with which anything is wrong, by its place.
create function relevo.check_installations(installations jsonb) returns void
  language plpgsql stable
as $$
declare
  one jsonb;
  place bigint;
begin
  for one, place in select i.one, i.place from jsonb_array_elements(installations) with ordinality as i(one, place)
                     where relevo.is_plain_installation(i.one) is not true loop
    perform relevo.check_installation(one);
  end loop;
exception when invalid_parameter_value then
  perform relevo.refuse(case when jsonb_array_length(installations) = 1 then sqlerrm else format('installations.%s: %s', place - 1, sqlerrm) end);
end
$$;

-- Reads a time of an event, which has a place if it is one of many.
create function relevo.event_time_1(event jsonb, name text, place bigint) returns timestamptz
  language plpgsql stable
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
    perform relevo.refuse_event(place, format('%s must be a time with its zone, such as 2026-11-15T09:00:00Z, got %s', name, left(event ->> name, 60)));
  end if;
  if given not between '2000-01-01Z' and '2200-01-01Z' then
    perform relevo.refuse_event(place, format('%s must lie between the years 2000 and 2200, got %s', name, given));
  end if;
  return given;
end
$$;

create or replace function relevo.event_time(event jsonb, name text) returns timestamptz
  language plpgsql stable
as $$ begin return relevo.event_time_1(event, name, null); end $$;

create function relevo.check_deadline_1(until timestamptz, at timestamptz, place bigint) returns timestamptz
  language plpgsql stable
as $$
begin
  if until <= greatest(at, now()) then
    perform relevo.refuse_event(place, format('deadline_at must lie after now and after scheduled_at, got %s', until));
  end if;
  return until;
end
$$;

create or replace function relevo.check_deadline(until timestamptz, at timestamptz) returns timestamptz
  language plpgsql stable
as $$ begin return relevo.check_deadline_1(until, at, null); end $$;

-- Writes those of some checked events that are not known yet, in their order, and tells of each in order. One without an id was written
-- by somebody else meanwhile, or stands here twice: only a new statement sees which it is.
create or replace function relevo.write_events(events jsonb)
  returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set jit = off
  set enable_seqscan = off
as $$
declare
  many boolean := jsonb_array_length(events) > 1; -- of one alone nobody asks which
begin
  return query
  with given as materialized (
    select g.ord, g.event, g.event ->> 'type' as event_type,
           -- its own, and the one by which it is known if it was personal and is old or forgotten
           array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
           encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex') as hash,
           g.event -> 'matching' as matching,
           case when jsonb_typeof(g.event -> 'installations') is distinct from 'array' then '{}'
                when jsonb_array_length(g.event -> 'installations') = 1 then array[(g.event -> 'installations' ->> 0)::uuid] -- most name one
                else array(select i.installation::uuid from jsonb_array_elements_text(g.event -> 'installations') as i(installation)) end as installations,
           coalesce(case when g.event ? 'scheduled_at' then relevo.event_time_1(g.event, 'scheduled_at', case when many then g.ord end) end, now()) as at,
           case when g.event ? 'deadline_at' then relevo.event_time_1(g.event, 'deadline_at', case when many then g.ord end) end as until
      from jsonb_array_elements(events) with ordinality as g(event, ord)
  ), looked_up as (
    select g.*, coalesce(n.id, k.event_id) as known_id, nullif(coalesce(n.content_hash, k.content_hash), '') = g.hash as same_hash
      from given g
      left join lateral (select n.id, n.content_hash from relevo.notification_events n
                          where n.event_type = g.event_type and n.event_key = any (g.keys) limit 1) n on true
      left join lateral (select k.event_id, k.content_hash from relevo.event_keys k
                          where n.id is null and k.event_type = g.event_type and k.event_key = any (g.keys) limit 1) k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_topics, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, coalesce(m.event ->> 'title', ''),
           coalesce(m.event ->> 'body', ''), coalesce(nullif(m.event -> 'data', 'null'), '{}'), coalesce(nullif(m.event -> 'push', 'null'), '{}'),
           case m.event ->> 'audience' when 'owners' then 'installations' else m.event ->> 'audience' end, m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           relevo.check_deadline_1(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at,
                                   case when many then m.ord end),
           case when m.event -> 'topics' <> 'null' then array(select distinct jsonb_array_elements_text(m.event -> 'topics')) else '{}' end,
           case when m.matching -> 'rubros' <> 'null' then array(select jsonb_array_elements_text(m.matching -> 'rubros')) else '{}' end,
           relevo.region_key(m.matching ->> 'region'), m.matching ->> 'tipo', (m.matching ->> 'monto')::numeric, m.matching ->> 'moneda',
           relevo.words(m.matching ->> 'text'), m.hash
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null
     order by m.ord -- in the order of all who write the same: nobody waits crosswise
    on conflict (event_type, event_key) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id)
    select m.new_id, i.installation
      from numbered m
      cross join lateral unnest(case when cardinality(m.installations) > 1 then array(select distinct unnest(m.installations))
                                     else m.installations end) as i(installation)
     where (m.new_id in (select w.id from made w)) is true -- looked up in a hash: "is true" keeps it from becoming a join
  ), owned as (
    insert into relevo.event_owners (event_id, owner)
    select m.new_id, o.owner
      from numbered m
      cross join lateral jsonb_array_elements_text(nullif(m.event -> 'owners', 'null')) as o(owner)
     where (m.new_id in (select w.id from made w)) is true
    on conflict do nothing
  )
  select coalesce(m.known_id, case when (m.new_id in (select w.id from made w)) is true then m.new_id end),
         m.known_id is null, m.known_id is null or m.same_hash,
         case when cardinality(m.installations) > 0 then
           array(select i.installation
                   from unnest(m.installations) as i(installation)
                   left join lateral (select true as known from relevo.device_installations d
                                       where d.installation_id = i.installation offset 0) d on true
                  where d.known is null)
           else '{}' end
    from numbered m
   order by m.ord;
end
$$;

create or replace function relevo.enqueue_any_type(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
  news boolean[];
  sames boolean[];
  strangers text[]; -- lists of different lengths have no array of their own
  one record;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  perform relevo.check_events(events);
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content), array_agg(case when cardinality(w.unknown_installations) > 0 then w.unknown_installations::text end)
    into ids, news, sames, strangers from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if true = any (news) and relevo.any_urgent(events) then
    perform relevo.wake_now('fanout');
  elsif true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select u.id, u.new, u.same, coalesce(u.strangers::uuid[], '{}') from unnest(ids, news, sames, strangers) as u(id, new, same, strangers);
end
$$;

create or replace function relevo.enqueue_many(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(events) = 'array' and events @? '$[*].type ? (@ starts with "relevo.")' then
    perform relevo.refuse_event(case when jsonb_array_length(events) > 1 then min(e.place) end, 'type must not begin with relevo., which is for Relevo itself')
       from jsonb_array_elements(events) with ordinality as e(one, place)
      where jsonb_typeof(e.one -> 'type') = 'string' and starts_with(e.one ->> 'type', 'relevo.');
  end if;
  return query select * from relevo.enqueue_any_type(events);
end
$$;

create or replace function relevo.register_many(installations jsonb) returns uuid[]
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  firsts int[]; -- the places of those that share neither id nor token with one before them
  others int[];
  ids uuid[];
  written uuid[];
begin
  if jsonb_typeof(installations) is distinct from 'array' or jsonb_array_length(installations) > 100000 then
    perform relevo.refuse('installations must be a list of at most 100000 installations');
  end if;
  perform relevo.check_installations(installations);
  select coalesce(array_agg(n.ord order by n.ord) filter (where n.first), '{}'), coalesce(array_agg(n.ord order by n.ord) filter (where not n.first), '{}')
    into firsts, others
    from (select g.ord::int, (g.i ->> 'installation_id' is null or row_number() over (partition by lower(g.i ->> 'installation_id') order by g.ord) = 1)
                         and (g.i ->> 'token' is null or row_number() over (partition by g.i ->> 'token' order by g.ord) = 1) as first
            from jsonb_array_elements(installations) with ordinality as g(i, ord)) n;
  for tries in 1 .. 10 loop
    begin
      written := relevo.write_installations(case when others = '{}' then installations
        else (select jsonb_agg(installations -> (f.ord - 1) order by f.ord) from unnest(firsts) as f(ord)) end);
      exit;
    exception when unique_violation then
      -- somebody else took one of the tokens meanwhile; the next look sees that
      if tries = 10 then
        raise;
      end if;
    end;
  end loop;
  if others = '{}' then
    return coalesce(written, '{}');
  end if;
  for n in 1 .. cardinality(firsts) loop
    ids[firsts[n]] := written[n];
  end loop;
  for n in 1 .. cardinality(others) loop
    ids[others[n]] := (relevo.register_many(jsonb_build_array(installations -> (others[n] - 1))))[1];
  end loop;
  return ids;
end
$$;

revoke all on function relevo.refuse_event(bigint, text), relevo.check_events(jsonb), relevo.check_installations(jsonb),
  relevo.event_time_1(jsonb, text, bigint), relevo.check_deadline_1(timestamptz, timestamptz, bigint) from public;
