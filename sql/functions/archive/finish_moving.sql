-- Seals a month of a plain table once nothing of it is left in the hot one; returns whether it did.
create or replace function relevo.finish_moving(of_entity text, of_month date) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  moved bigint;
begin
  if (of_entity = 'licitaciones' and exists (
        select from relevo.licitaciones l
         where l.created_at >= of_month::timestamp at time zone 'UTC' and l.created_at < (of_month + interval '1 month') at time zone 'UTC'))
     or (of_entity = 'notification_events' and exists (
        select from relevo.notification_events e where relevo.event_month(e) = of_month)) then
    return false;
  end if;
  perform relevo.bar_writes(format('relevo_archive.%I', place)::regclass);
  execute format('select count(*) from relevo_archive.%I', place) into moved;
  update relevo.archive_exports
     set state = 'retired', rows = moved, sealed_at = now(), retired_at = now(), updated_at = now()
   where entity = of_entity and month = of_month and state = 'moving';
  return found;
end
$$;

revoke all on function relevo.finish_moving from public;
