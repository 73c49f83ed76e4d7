-- Keeps months from being sealed until the transaction ends, and returns which of some days lie in months that are not. The lock is the one
-- that writers of a partition take anyway, taken before the look: a seal waits for it, and costs no write. The case of one day, which every
-- fan-out and most settles need, comes first: it is the quickest.
create or replace function relevo.hold_open(days date[]) returns date[]
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  month_start date;
begin
  if cardinality(days) = 1 then
    perform relevo.hold_month(days[1]);
    -- a new statement: it sees a seal that was waited for
    return case when exists (select from relevo.archive_exports x
                              where x.entity = 'notification_deliveries' and x.month = date_trunc('month', days[1]::timestamp)::date)
                then '{}' else days end;
  end if;
  for month_start in select distinct date_trunc('month', d::timestamp)::date from unnest(days) as d order by 1 loop
    perform relevo.hold_month(month_start);
  end loop;
  return array(select d from unnest(days) as d
                where not exists (select from relevo.archive_exports x
                                   where x.entity = 'notification_deliveries' and x.month = date_trunc('month', d::timestamp)::date));
end
$$;

revoke all on function relevo.hold_open from public;
