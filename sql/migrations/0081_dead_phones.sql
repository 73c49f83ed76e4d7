-- needs relevo 0.2.0
-- Fan-out reads the phones it may reach, and no others: those that may not receive leave the index of preferences at once, and the table once they
-- have been dead for long; an event for one project reads that project's phones; slices of events with many words and of long lists of phones
-- read what is theirs.

alter table relevo.device_installations add column dead_since timestamptz;

comment on column relevo.device_installations.dead_since is 'Since when its token is disabled or it is unregistered; cleanup deletes it after a while.';

-- Notes since when a phone is dead, or that it is not any more.
create function relevo.note_dead() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  new.dead_since := case when new.invalidated_at is not null or not new.active then coalesce(new.invalidated_at, now()) end;
  return new;
end
$$;

create trigger note_dead before insert or update on relevo.device_installations
  for each row when ((new.invalidated_at is not null or not new.active) is distinct from (new.dead_since is not null))
  execute function relevo.note_dead();

-- Takes the preferences of a phone that may not receive any more out of the index, or puts them back.
create function relevo.index_phone() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if relevo.may_receive(new) then
    insert into relevo.preference_index (bucket, seq, installation_id, name, sure)
    select b.bucket, new.seq, new.installation_id, p.name, b.sure
      from relevo.notification_preferences p
      cross join lateral relevo.preference_buckets(p) b
     where p.installation_id = new.installation_id
    on conflict do nothing;
  else
    delete from relevo.preference_index x where x.installation_id = new.installation_id;
  end if;
  return null;
end
$$;

create trigger index_phone after update on relevo.device_installations
  for each row when (relevo.may_receive(old) is distinct from relevo.may_receive(new)) execute function relevo.index_phone();

-- Keeps the index of preferences: those of phones that may receive stand in it. The phones are locked first, in one order: who changes one
-- meanwhile is waited for, or waits, and then sees what was written.
create or replace function relevo.index_preferences() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if tg_op <> 'INSERT' then
    perform from relevo.device_installations i where i.installation_id in (select g.installation_id from gone g) order by i.installation_id for share;
    delete from relevo.preference_index x using gone g where x.installation_id = g.installation_id and x.name = g.name;
  end if;
  if tg_op <> 'DELETE' then
    perform from relevo.device_installations i where i.installation_id in (select c.installation_id from come c) order by i.installation_id for share;
    insert into relevo.preference_index (bucket, seq, installation_id, name, sure)
    select b.bucket, i.seq, i.installation_id, p.name, b.sure
      from come c
      join relevo.notification_preferences p on p.installation_id = c.installation_id and p.name = c.name
      join relevo.device_installations i on i.installation_id = c.installation_id
      cross join lateral relevo.preference_buckets(p) b
     where relevo.may_receive(i)
    on conflict do nothing;
  end if;
  return null;
end
$$;

-- What is left of a named audience after its first slice: read once, cut into slices, each deleted when it is made.
create table relevo.fanout_slices (
  event_id bigint not null references relevo.notification_events on delete cascade,
  last_seq bigint not null,
  seqs     bigint[] not null check (cardinality(seqs) > 0),
  primary key (event_id, last_seq)
);

comment on table relevo.fanout_slices is 'The phones of a long named audience that are still to get their deliveries, slice by slice.';

-- Takes the next slice that was kept of a named audience: its phones, by number; nothing if none was.
create function relevo.take_kept_slice_1(e relevo.notification_events) returns bigint[]
  language plpgsql volatile
as $$
declare
  taken bigint[];
begin
  delete from relevo.fanout_slices s
   where s.event_id = e.id
     and s.last_seq = (select k.last_seq from relevo.fanout_slices k
                        where k.event_id = e.id and k.last_seq > e.fanout_cursor order by k.last_seq limit 1)
  returning s.seqs into taken;
  return taken;
end
$$;

-- Cuts the phones of a named audience that are to come into slices, and keeps all but the first, which it tells.
create function relevo.cut_slices_1(e relevo.notification_events, named uuid[], most int) returns bigint[]
  language plpgsql volatile
as $$
declare
  ahead bigint[] := array(select i.seq
                            from (select i.seq from relevo.device_installations i where i.installation_id = any (named) offset 0) i
                           where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto
                           order by i.seq);
begin
  insert into relevo.fanout_slices (event_id, last_seq, seqs)
  select e.id, s.seqs[cardinality(s.seqs)], s.seqs
    from (select ahead[n + 1 : n + most] as seqs from generate_series(most, cardinality(ahead) - 1, most) as n) s
  on conflict (event_id, last_seq) do update set seqs = excluded.seqs; -- kept before, of another size
  return ahead[:most];
end
$$;

-- Up to which number the next slice of a matching event reaches: as far as there are so many candidates, found by windows of numbers that grow
-- while they hold few. Each looks at every place once, so that an event with many words does not read all that is left of each.
create function relevo.matching_window_1(buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language plpgsql stable
as $$
declare
  wide bigint := most;
  last bigint := after_seq;
  met bigint := 0;
  here bigint;
begin
  while last < upto_seq and met < most loop
    select count(*) into here
      from (select from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > last and x.seq <= last + wide
             limit 4 * most) c;
    if here = 4 * most and wide > 1 then
      wide := greatest(wide / 4, 1);
      continue;
    end if;
    met := met + here;
    last := last + wide;
    wide := case when here * 8 <= most then wide * 8 else wide end;
  end loop;
  return least(last, upto_seq);
end
$$;

-- The next phones that an event concerns, up to a slice of them: whether those are the last, the last one's sequence number, and of those that
-- may receive it the ids, providers and sending projects.
create function relevo.next_targets_3(e relevo.notification_events, most int,
                                      out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
declare
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[];
  seqs bigint[];
  named uuid[];
  candidates int;
  window_end bigint := e.fanout_upto;
begin
  if e.audience = 'matching' then
    buckets := relevo.buckets_of_1(e);
    if e.fanout_cursor = 0 then -- most events have few: those are read in no order
      select count(*),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, seqs
        from (select x.seq, x.sure, x.installation_id, x.name from relevo.preference_index x
               where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
               limit few) a;
    end if;
    if e.fanout_cursor > 0 or candidates = few then
      window_end := relevo.matching_window_1(buckets, e.fanout_cursor, e.fanout_upto, most);
      select count(*), max(a.seq),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, last_seq, seqs
        from (select x.seq, x.sure, x.installation_id, x.name -- with ties: all preferences of a phone are in one slice
                from relevo.preference_index x
               where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= window_end
               order by x.seq fetch first most rows with ties) a;
    end if;
    is_last := candidates < most and window_end >= e.fanout_upto;
    select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project)
      into phones, providers, projects
      from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project
              from relevo.device_installations i
             where i.seq = any (seqs) and relevo.may_receive(i)
               and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project)) t;
  elsif e.audience = 'everyone' and e.project is null then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  elsif e.audience = 'everyone' then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.project = e.project and i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  else
    if e.fanout_cursor > 0 then
      seqs := relevo.take_kept_slice_1(e);
    end if;
    if seqs is null then
      named := array(select a.installation_id from relevo.event_audience a where a.event_id = e.id
                     union all
                     select i.installation_id from relevo.event_owners o
                       cross join lateral (select i.installation_id from relevo.device_installations i where i.owner = o.owner offset 0) i
                      where o.event_id = e.id);
      if cardinality(named) > most then
        seqs := relevo.cut_slices_1(e, named, most);
      end if;
    end if;
    if seqs is not null then
      named := array(select i.installation_id from relevo.device_installations i -- whose owner changed since they were read is left out
                      where i.seq = any (seqs)
                        and (exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = i.installation_id offset 0)
                             or exists (select from relevo.event_owners o where o.event_id = e.id and o.owner = i.owner offset 0)));
    end if;
    last_seq := seqs[cardinality(seqs)];
    is_last := seqs is null or not exists (select from relevo.fanout_slices s where s.event_id = e.id and s.last_seq > next_targets_3.last_seq);
    select array_agg(i.installation_id), array_agg(i.provider), array_agg(relevo.sending_project(i.provider, i.project))
      into phones, providers, projects
      from (select * from relevo.device_installations i where i.installation_id = any (named) offset 0) i -- not along all phones
     where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and relevo.may_receive(i)
       and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project);
  end if;
  last_seq := coalesce(last_seq, window_end); -- nobody in a window
end
$$;

revoke all on function relevo.take_kept_slice_1(relevo.notification_events), relevo.cut_slices_1(relevo.notification_events, uuid[], int),
  relevo.matching_window_1(text[], bigint, bigint, int), relevo.next_targets_3(relevo.notification_events, int), relevo.note_dead(),
  relevo.index_phone() from public;

drop function relevo.next_targets_2(relevo.notification_events, int);

update relevo.device_installations set dead_since = coalesce(invalidated_at, updated_at) where invalidated_at is not null or not active;

delete from relevo.preference_index x using relevo.device_installations i
 where i.installation_id = x.installation_id and not relevo.may_receive(i);

create index device_installations_dead on relevo.device_installations (dead_since) where dead_since is not null;
create index device_installations_live on relevo.device_installations (seq)
  where active and push_capable and permission = 'granted' and invalidated_at is null and token is not null;
create index device_installations_live_of_project on relevo.device_installations (project, seq)
  where active and push_capable and permission = 'granted' and invalidated_at is null and token is not null;
