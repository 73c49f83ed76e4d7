-- Seals a month, unless something of it is open. Events half way through fan-out end here, or in the fan-out that holds them, which waits for
-- this and then finds the month sealed.
create or replace function relevo.seal_month(of_entity text, of_month date, rows_per_part int) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
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

revoke all on function relevo.seal_month from public;
