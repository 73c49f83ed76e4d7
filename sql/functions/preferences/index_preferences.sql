-- Trigger: keeps the index of preferences, which holds those of phones that may receive, and brings what was gathered for digests to where it belongs now. Locks the phones first, in one order: a change of one
-- meanwhile is waited for, or waits and then sees what was written.
create or replace function relevo.index_preferences() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
declare
  changed uuid[]; -- phones of which something changed
begin
  if tg_op <> 'INSERT' then
    perform from relevo.device_installations i where i.installation_id in (select g.installation_id from gone g) order by i.installation_id for share;
    delete from relevo.preference_index x using gone g where x.installation_id = g.installation_id and x.name = g.name;
  end if;
  if tg_op <> 'DELETE' then
    perform from relevo.device_installations i where i.installation_id in (select c.installation_id from come c) order by i.installation_id for share;
    insert into relevo.preference_index (bucket, seq, installation_id, name, sure, delivery)
    select b.bucket, i.seq, i.installation_id, p.name, b.sure, p.delivery
      from come c
      join relevo.notification_preferences p on p.installation_id = c.installation_id and p.name = c.name
      join relevo.device_installations i on i.installation_id = c.installation_id
      cross join lateral relevo.preference_buckets(p) b
     where relevo.may_receive(i)
    on conflict do nothing;
  end if;
  if not exists (select from relevo.digest_items) then
    return null;
  end if;
  if tg_op = 'INSERT' then
    changed := array(select c.installation_id from come c);
  elsif tg_op = 'DELETE' then
    changed := array(select g.installation_id from gone g);
  else
    changed := array(select c.installation_id from come c join gone g on g.installation_id = c.installation_id and g.name = c.name
                      where to_jsonb(c) - 'updated_at' <> to_jsonb(g) - 'updated_at'); -- apps say the same again at every start
  end if;
  if changed <> '{}' then
    perform relevo.place_items(changed);
  end if;
  return null;
end
$$;

revoke all on function relevo.index_preferences from public;
