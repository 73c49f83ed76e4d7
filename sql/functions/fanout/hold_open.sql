-- Keeps months from being sealed until the transaction ends, and returns which of some days lie in months that are not. The case of one day,
-- which every fan-out and most settles need, comes first: it is the quickest.
create or replace function relevo.hold_open(days date[]) returns date[]
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  month_name text;
begin
  if cardinality(days) = 1 then
    perform pg_advisory_xact_lock_shared(hashtextextended('relevo.month:' || to_char(days[1], 'YYYY-MM'), 0));
    -- a new statement: it sees a seal that was waited for
    return case when exists (select from relevo.archive_exports x
                              where x.entity = 'notification_deliveries' and x.month = date_trunc('month', days[1]::timestamp)::date)
                then '{}' else days end;
  end if;
  for month_name in select distinct to_char(d, 'YYYY-MM') from unnest(days) as d order by 1 loop
    perform pg_advisory_xact_lock_shared(hashtextextended('relevo.month:' || month_name, 0));
  end loop;
  return array(select d from unnest(days) as d
                where not exists (select from relevo.archive_exports x
                                   where x.entity = 'notification_deliveries' and x.month = date_trunc('month', d::timestamp)::date));
end
$$;

revoke all on function relevo.hold_open from public;
