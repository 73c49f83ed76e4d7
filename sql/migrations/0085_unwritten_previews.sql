-- needs relevo 0.2.0
-- A preview and an explanation of an event that was not enqueued write nothing, not even to undo it: they work in a read-only transaction and on
-- a standby.

-- Returns an event as it would be written, as far as it says whom it reaches; refuses what writing it would refuse.
create function relevo.draft_event(event jsonb, of_project text) returns relevo.notification_events
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  perform relevo.check_event(event);
  e.id := 0; -- nobody's
  e.project := of_project;
  e.audience := case event ->> 'audience' when 'owners' then 'installations' else event ->> 'audience' end;
  e.category := event ->> 'category';
  e.state := 'waiting';
  e.scheduled_at := coalesce(relevo.event_time_1(event, 'scheduled_at', null), now());
  e.deadline_at := relevo.check_deadline_1(
    coalesce(relevo.event_time_1(event, 'deadline_at', null), e.scheduled_at + interval '1 second' * coalesce((event ->> 'ttl_s')::numeric::int,
      (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type'))), e.scheduled_at, null);
  e.match_topics := array(select distinct jsonb_array_elements_text(coalesce(nullif(event -> 'topics', 'null'), '[]')));
  e.match_rubros := array(select jsonb_array_elements_text(coalesce(nullif(matching -> 'rubros', 'null'), '[]')));
  e.match_prefixes := relevo.prefixes(e.match_rubros);
  e.match_region := relevo.region_key(matching ->> 'region');
  e.match_tipo := matching ->> 'tipo';
  e.match_monto := (matching ->> 'monto')::numeric(20, 2);
  e.match_moneda := matching ->> 'moneda';
  e.match_words := relevo.words(matching ->> 'text');
  return e;
end
$$;

-- Finds the phones in a range that a drafted event reaches.
create function relevo.draft_targets(e relevo.notification_events, named uuid[], owners text[], buckets text[], after_seq bigint, upto_seq bigint)
  returns table (installation_id uuid, project text)
  language sql stable
as $$
  select i.installation_id, i.project
    from (select distinct x.seq
            from relevo.preference_index x
           where (e).audience = 'matching' and x.bucket = any (draft_targets.buckets) and x.seq > after_seq and x.seq <= upto_seq
             and (x.sure or exists (select from relevo.notification_preferences p
                                     where p.installation_id = x.installation_id and p.name = x.name and relevo.preference_matches(p, e)))) c
    cross join lateral (select i.* from relevo.device_installations i where i.seq = c.seq offset 0) i
   where relevo.may_receive(i) and ((e).category is null or (e).category <> all (i.opt_outs))
  union all
  select i.installation_id, i.project
    from relevo.device_installations i
   where (e).audience = 'everyone' and i.seq > after_seq and i.seq <= upto_seq and not i.for_news
     and relevo.may_receive(i) and ((e).category is null or (e).category <> all (i.opt_outs))
  union all
  select i.installation_id, i.project
    from (select n.installation_id from (select distinct unnest(draft_targets.named) as id) u
            cross join lateral (select n.installation_id from relevo.device_installations n where n.installation_id = u.id offset 0) n
           union all
          select n.installation_id from (select distinct unnest(draft_targets.owners) as owner) u
            cross join lateral (select n.installation_id from relevo.device_installations n where n.owner = u.owner offset 0) n) a
    cross join lateral (select i.* from relevo.device_installations i where i.installation_id = a.installation_id offset 0) i
   where (e).audience = 'installations' and i.seq > after_seq and i.seq <= upto_seq
     and relevo.may_receive(i) and ((e).category is null or (e).category <> all (i.opt_outs))
$$;

-- Counts the phones that a drafted event reaches, or where there are many, some of them that speak for more; and names some.
create function relevo.count_draft_targets(e relevo.notification_events, named uuid[], owners text[], most int) returns jsonb
  language plpgsql stable
  set enable_seqscan = off
as $$
declare
  all_looks constant int := 10000; -- so many are counted
  looks constant int := 2000; -- so many speak for more
  buckets text[];
  first_seq bigint := (select coalesce(min(i.seq), 1) - 1 from relevo.device_installations i);
  last_seq bigint := (select coalesce(max(i.seq), 0) from relevo.device_installations i);
  places int := 1;
  part numeric := last_seq - first_seq; -- how many numbers there are for each place
  wide bigint := last_seq - first_seq;
  seen bigint;
  reached bigint;
  squares numeric; -- of how many are reached at each place: what stands close together is less certain than what is spread
  unit numeric; -- how many one place may add that was missed
  margin numeric;
  share numeric;
  sample uuid[];
begin
  if e.audience = 'matching' then
    buckets := array(select b.bucket from unnest(relevo.event_buckets(e)) as b(bucket)
                      where exists (select from relevo.preference_index x where x.bucket = b.bucket));
  end if;
  if e.audience in ('everyone', 'matching')
     and relevo.count_candidates(e.audience, buckets, first_seq, last_seq, 1, wide, all_looks + 1) > all_looks then
    -- each place is looked up in each bucket
    places := least(greatest(2000 / coalesce(cardinality(buckets), 1), 10), wide);
    part := wide::numeric / places;
    wide := greatest(part / 250, 1);
    seen := relevo.count_candidates(e.audience, buckets, first_seq, last_seq, places, wide, 2 * looks);
    wide := least(greatest(round(wide::numeric * looks / greatest(seen, 1)), 1), ceil(part));
    while wide > 1 and relevo.count_candidates(e.audience, buckets, first_seq, last_seq, places, wide, 2 * looks) = 2 * looks loop
      wide := wide / 2;
    end loop;
  end if;
  with met as materialized (
    select s.installation_id, p.after, row_number() over () as n
      from relevo.spread_places(first_seq, last_seq, places, wide) p
      cross join lateral relevo.draft_targets(e, named, owners, buckets, p.after, p.upto) s
     where e.project is null or s.project = e.project
  )
  select coalesce(sum(h.phones), 0), coalesce(sum(h.phones ^ 2), 0), coalesce(max(h.phones), 0),
         (select array_agg(m.installation_id order by m.n) from met m where m.n <= most)
    into reached, squares, unit, sample
    from (select count(*) as phones from met m group by m.after) h;
  share := part / greatest(wide, 1);
  unit := greatest(unit, ceil(looks::numeric / places), 1);
  margin := case when places = 1 then 0 else 2 * sqrt(squares - reached ^ 2 / places + unit ^ 2) end;
  return jsonb_build_object('count', round(reached * share), 'exact', places = 1,
    'at_least', round(greatest(reached, (reached - margin) * share)),
    'at_most', round(case when places = 1 then reached else least((reached + margin + 2 * unit) * share, last_seq - first_seq) end),
    'sample', coalesce((select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project,
                                                            'provider', i.provider, 'platform', i.platform) order by u.n)
                          from unnest(sample) with ordinality as u(id, n)
                          join relevo.device_installations i on i.installation_id = u.id), '[]'));
end
$$;

-- Tells whom an event would reach, in one project or in all; nothing is written.
create function relevo.preview_draft(event jsonb, most int, of_project text) returns jsonb
  language plpgsql stable
as $$
declare
  e relevo.notification_events := relevo.draft_event(event, of_project);
  named uuid[] := array(select n.id::uuid from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as n(id));
  owners text[] := array(select jsonb_array_elements_text(coalesce(nullif(event -> 'owners', 'null'), '[]')));
begin
  return relevo.count_draft_targets(e, named, owners, most) || jsonb_build_object('unknown_installations', to_jsonb(array(
    select u.id from unnest(named) with ordinality as u(id, place)
      left join lateral (select true as known from relevo.device_installations d where d.installation_id = u.id offset 0) d on true
     where d.known is null order by u.place)));
end
$$;

-- Tells whom an event would reach.
create or replace function relevo.preview(event jsonb, most int default 10) returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(most, -1) not between 0 and 100 then
    perform relevo.refuse('most must be between 0 and 100');
  end if;
  return relevo.preview_draft(event, most, null);
end
$$;

-- Tells whom an event of one project would reach.
create or replace function relevo.preview_in_project(event jsonb, most int, of_project text) returns jsonb
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.preview_draft(event, most, of_project) $$;

-- Tells why an installation gets an event, or not: one that is there or a draft, which names it or not and is for some owners.
create function relevo.explain_draft(e relevo.notification_events, names_it boolean, owners text[], installation uuid) returns jsonb
  language plpgsql stable
as $$
declare
  i relevo.device_installations;
  d relevo.notification_deliveries;
  done relevo.event_completions;
  fitting text;
  misses jsonb := '[]';
  rule text;
  why text;
  gets boolean := false;
begin
  select n.* into i from relevo.device_installations n where n.installation_id = installation;
  if e.event_day is not null then
    select n.* into d from relevo.notification_deliveries n
     where n.event_day = e.event_day and n.notification_event_id = e.id and n.installation_id = installation;
  end if;
  select c.* into done from relevo.event_completions c where c.event_id = e.id and c.owner = i.owner;
  if e.audience = 'matching' then
    select min(p.name) filter (where m.mismatch is null),
           coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'differs_in', m.mismatch) order by p.name) filter (where m.mismatch is not null), '[]')
      into fitting, misses
      from relevo.notification_preferences p
      cross join lateral (select relevo.preference_mismatch(p, e) as mismatch) m
     where p.installation_id = installation;
  end if;
  case
    when e.id is null then
      rule := 'event_gone'; why := 'There is no such event, or it was archived.';
    when i.installation_id is null then
      rule := 'installation_gone'; why := 'There is no such installation.';
    when e.audience = 'everyone' and i.for_news then
      rule := 'not_named'; why := 'It is an address for news, and gets nothing else.';
    when e.audience = 'installations' and not (coalesce(names_it, false) or coalesce(i.owner = any (owners), false)) then
      rule := 'not_named'; why := 'The event is for others: it names neither this installation nor its owner.';
    when e.project <> i.project then
      rule := 'not_named'; why := format('The event is for the phones of project %s.', e.project);
    when not relevo.may_receive(i) then
      rule := 'not_allowed'; why := format('Pushes may not go to it: %s.', relevo.why_not_allowed(i));
    when e.category = any (i.opt_outs) then
      rule := 'opted_out'; why := format('It opted out of the category %s.', e.category);
    when e.audience = 'matching' and misses = '[]' and fitting is null then
      rule := 'no_preference'; why := 'It has no preference, and so asks for nothing.';
    when e.audience = 'matching' and fitting is null then
      rule := 'preference_differs';
      why := format('None of its preferences matches: %s.', (select string_agg(case m ->> 'differs_in' when 'disabled' then format('%s is disabled', m ->> 'name')
               else format('%s differs in %s', m ->> 'name', m ->> 'differs_in') end, ', ') from jsonb_array_elements(misses) m));
    when done.event_id is not null then
      rule := 'handled_elsewhere'; why := 'Its owner handled the event on another phone' || coalesce(': ' || done.reason, '') || '.';
    when d.id is not null and i.handled_before >= d.created_at then
      rule := 'handled_elsewhere'; why := 'Everything for it was handled elsewhere' || coalesce(': ' || i.handled_reason, '') || '.';
    when e.ended_at is not null then
      rule := 'event_ended'; why := format('The event was %s', e.state) || coalesce(': ' || e.end_reason, '') || '.';
    when e.deadline_at <= now() and d.id is null then
      rule := 'deadline_passed'; why := 'Its deadline has passed.';
    when e.fanout_finished_at is not null and d.id is null then
      rule := 'came_later'; why := 'The event had fanned out before this installation could receive it.';
    else
      gets := true;
      rule := case when e.audience = 'matching' then 'preference'
                   when e.audience = 'everyone' then 'everyone'
                   when names_it then 'named'
                   else 'owner' end;
      why := case rule when 'preference' then format('Its preference %s matches.', fitting)
                       when 'everyone' then 'The event is for everyone.'
                       when 'named' then 'The event names this installation.'
                       else format('The event is for its owner, %s.', i.owner) end;
  end case;
  return jsonb_build_object('gets_it', coalesce(d.status in ('pending', 'retryable', 'sent', 'ok', 'unconfirmed', 'unknown'), gets), 'rule', rule, 'reason', why,
    'preference', fitting, 'differing_preferences', misses,
    'delivery', case when d.id is not null then jsonb_build_object('id', d.id, 'status', d.status, 'attempts', d.attempt_count,
                       'error_code', d.last_error_code, 'updated_at', d.updated_at) end);
end
$$;

-- Tells why an installation gets an event that is there, or not.
create or replace function relevo.explain_event(of_event bigint, installation uuid) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  e relevo.notification_events;
begin
  select n.* into e from relevo.notification_events n where n.id = of_event;
  return relevo.explain_draft(e, exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = installation),
    array(select o.owner from relevo.event_owners o where o.event_id = e.id
             and o.owner = (select i.owner from relevo.device_installations i where i.installation_id = installation)), installation);
end
$$;

-- Tells why an installation would get an event that was not enqueued, or not.
create or replace function relevo.explain(event jsonb, installation uuid) returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if installation is null then
    perform relevo.refuse('installation must be given');
  end if;
  return relevo.explain_draft(relevo.draft_event(event, null),
    coalesce(lower(event ->> 'installations')::jsonb @> to_jsonb(array[installation::text]), false),
    array(select jsonb_array_elements_text(coalesce(nullif(event -> 'owners', 'null'), '[]'))), installation);
end
$$;

drop function relevo.try_event(jsonb, int, uuid);
drop function relevo.count_targets(bigint, int);

revoke all on function relevo.draft_event(jsonb, text), relevo.draft_targets(relevo.notification_events, uuid[], text[], text[], bigint, bigint),
  relevo.count_draft_targets(relevo.notification_events, uuid[], text[], int), relevo.preview_draft(jsonb, int, text),
  relevo.explain_draft(relevo.notification_events, boolean, text[], uuid) from public;
