-- Counts the phones that a drafted event reaches by a digest alone; of many a sample, in the order of their random ids, speaks for the others.
create or replace function relevo.count_draft_digests(e relevo.notification_events) returns bigint
  language plpgsql stable
  set enable_seqscan = off
as $$
declare
  looks constant int := 2000;
  seen bigint;
  told bigint;
  followers float8;
begin
  if e.audience <> 'matching' then
    return 0;
  end if;
  select count(*), count(*) filter (where relevo.unwanted(i.opt_outs, i.refused, i.accepted, e.category, relevo.category_rule(e.category)) is null
                                      and (e.project is null or i.project = e.project) and m.matches and not m.now)
    into seen, told
    from (select distinct f.installation_id from (select f.installation_id from relevo.digest_followers f order by f.installation_id limit looks) f) f
    cross join lateral (select i.* from relevo.device_installations i where i.installation_id = f.installation_id offset 0) i
    cross join lateral (select count(*) > 0 as matches, bool_or(p.delivery is null) as now from relevo.notification_preferences p
                         where p.installation_id = f.installation_id and relevo.preference_matches(p, e) offset 0) m;
  followers := case when seen < looks then seen
                    else greatest(seen, (select c.reltuples from pg_class c where c.oid = 'relevo.digest_followers'::regclass)) end;
  return round(told * followers / greatest(seen, 1));
end
$$;

revoke all on function relevo.count_draft_digests from public;
