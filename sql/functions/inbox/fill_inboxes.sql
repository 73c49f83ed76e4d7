-- Gives some phones that have an owner since before 0.4.0 the inbox of that owner, and returns how many. Phones that are being written are passed by.
create or replace function relevo.fill_inboxes(most int) returns int
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set enable_seqscan = off -- lookups only
as $$
declare
  phones uuid[] := array(select i.installation_id from relevo.device_installations i where i.owner is not null and i.inbox_id is null
                          order by i.seq limit most for no key update skip locked);
begin
  insert into relevo.inboxes (project, owner)
  select distinct i.project, i.owner from relevo.device_installations i where i.installation_id = any (phones) order by 2, 1
  on conflict do nothing;
  update relevo.device_installations i set inbox_id = b.id
    from relevo.inboxes b
   where i.installation_id = any (phones) and b.owner = i.owner and b.project = i.project;
  return cardinality(phones);
end
$$;

revoke all on function relevo.fill_inboxes from public;
