-- Trigger: takes the preferences of a phone that may not receive any more out of the index, or puts them back.
create or replace function relevo.index_phone() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if relevo.may_receive(new) then
    insert into relevo.preference_index (bucket, seq, installation_id, name, sure, delivery)
    select b.bucket, new.seq, new.installation_id, p.name, b.sure, p.delivery
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

revoke all on function relevo.index_phone from public;
