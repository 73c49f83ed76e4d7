-- needs relevo 0.2.0
-- Locks are taken in one order everywhere: an event before its deliveries and before phones. Where that cannot be, an event that somebody
-- holds is passed by.

-- Notes that events were sent for the first time, and their tenders; an event that somebody holds is passed by: whoever deletes it waits for
-- the deliveries that are locked here already.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language plpgsql volatile
as $$
begin
  perform relevo.note_sent_1(event_ids, coalesce(at, now()));
end
$$;

-- Locks the events that were told to one of some installations alone, or to an owner alone: before the phones, as a settle does, which notes
-- an event's first push and then disables tokens.
create function relevo.lock_told_alone_1(installations uuid[], of_owner text) returns void
  language plpgsql volatile
as $$
begin
  perform from relevo.notification_events e
    where e.id = any (array(
            select a.event_id from relevo.event_audience a
             where a.installation_id = any (installations)
               and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> a.installation_id)
            union all
            select o.event_id from relevo.event_owners o
             where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)))
    order by e.id for update;
end
$$;

revoke all on function relevo.lock_told_alone_1(uuid[], text) from public;

-- Forgets a person: the installation with all that leads to anybody, and what was said to it alone, but for a hash of its key, which
-- dedups. Deliveries keep a random key.
create or replace function relevo.forget_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known boolean;
  alone bigint[];
begin
  perform relevo.lock_told_alone_1(array[installation], null);
  delete from relevo.device_installations where installation_id = installation;
  known := found;
  alone := array(select a.event_id from relevo.event_audience a -- anew: one may have come meanwhile
                  where a.installation_id = installation
                    and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> installation));
  perform relevo.blank_events(alone, 'the installation was forgotten');
  delete from relevo.event_audience where installation_id = installation;
  return known or cardinality(alone) > 0;
end
$$;

-- Forgets an owner: the installations, what was said to them or to the owner alone, and the name; tells how many installations there were.
create or replace function relevo.forget_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  many int;
begin
  perform relevo.check_owner(of_owner);
  perform relevo.lock_told_alone_1(array(select i.installation_id from relevo.device_installations i where i.owner = of_owner), of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i where i.owner = of_owner order by i.installation_id for update) i;
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners where owner = of_owner;
  delete from relevo.event_completions where owner = of_owner;
  return many;
end
$$;

-- Seals a month, unless something of it is open; what was half way fanned out ends, or is ended by the fan-out that holds it, which waits for
-- this and then finds the month sealed.
create or replace function relevo.seal_month(of_entity text, of_month date, rows_per_part int) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
  perform pg_advisory_xact_lock(hashtextextended('relevo.month:' || to_char(of_month, 'YYYY-MM'), 0));
  execute format('lock table relevo.%I in share row exclusive mode', place);
  -- who wrote before is through now: what was opened meanwhile is seen, and keeps the month open; what is claimed is open
  if relevo.is_open(of_entity, of_month) then
    return false;
  end if;
  if of_entity = 'notification_deliveries' then
    update relevo.notification_events e
       set state = 'cancelled', ended_at = now(), swept_at = now(), updated_at = now(),
           end_reason = 'its month was archived before its fan-out was finished'
      from (select n.id from relevo.notification_events n
             where n.state = 'fanning' and date_trunc('month', n.event_day::timestamp)::date = of_month
               for update skip locked) n
     where e.id = n.id;
    delete from relevo.dead_letters l where l.event_day >= of_month and l.event_day < (of_month + interval '1 month')::date;
  end if;
  insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)
  values (of_entity, of_month, 'sealed', place, rows_per_part, now());
  perform relevo.bar_writes(format('relevo.%I', place)::regclass);
  return true;
end
$$;
