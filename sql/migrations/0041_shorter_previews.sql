-- needs relevo 0.2.0
-- Lets a preview count half as many phones before it estimates: it answers in a tenth of a second, however broad the event is.

-- How many installations an event reaches, and the first of them. Beyond 10,000 that were looked at it is estimated by eight places spread
-- over the rest: the oldest phones alone would not tell of the newest.
create or replace function relevo.count_targets(of_event bigint, most int) returns jsonb
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  buckets text[];
  last_seq bigint := (select coalesce(max(i.seq), 0) from relevo.device_installations i);
  after bigint := 0;
  upto bigint;
  bound bigint;
  found_here bigint;
  ids uuid[];
  reached numeric := 0;
  sample uuid[] := '{}';
  exact boolean := true;
  step bigint;
  begun bigint;
  share numeric;
begin
  select n.* into e from relevo.notification_events n where n.id = of_event;
  buckets := case when e.audience = 'matching' then relevo.event_buckets(e) end;
  for part in 1 .. 12 loop
    -- four slices from the first phone on, and, if that was not all, a small one out of the middle of each eighth of the rest
    if part = 5 then
      step := greatest((last_seq - after + 7) / 8, 1);
    end if;
    upto := case when part < 5 then last_seq else least(after + step, last_seq) end;
    bound := coalesce(relevo.slice_end_1(of_event, e.audience, buckets, after, upto, case when part < 5 then 2500 else 500 end), upto);
    share := 1;
    if part >= 5 and bound < upto then
      exact := false;
      begun := after;
      after := after + (upto - after) / 2;
      bound := coalesce(relevo.slice_end_1(of_event, e.audience, buckets, after, upto, 500), upto);
      share := (upto - begun)::numeric / (bound - after);
    end if;
    select count(*), array_agg(t.installation_id order by t.n) filter (where t.n <= most - cardinality(sample)) into found_here, ids
      from (select s.installation_id, row_number() over () as n
              from relevo.slice_targets(of_event, e.audience, buckets, after, bound) s
             where e.project is null or s.project = e.project) t;
    sample := sample || coalesce(ids, '{}');
    reached := reached + found_here * share;
    after := case when part < 5 then bound else upto end;
    exit when after >= last_seq;
  end loop;
  return jsonb_build_object('count', round(reached), 'exact', exact,
    'sample', coalesce((select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project,
                                                            'provider', i.provider, 'platform', i.platform) order by u.n)
                          from unnest(sample) with ordinality as u(id, n)
                          join relevo.device_installations i on i.installation_id = u.id), '[]'));
end
$$;
