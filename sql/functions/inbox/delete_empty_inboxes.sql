-- Deletes those of some owners' inboxes that nothing leads to any more: no phone, none that left it, no kept item and no event that found no phone. Each is
-- locked first, so that whoever registers a phone for the owner comes before or makes the inbox anew.
create or replace function relevo.delete_empty_inboxes(ids bigint[]) returns void
  language plpgsql volatile
as $$
begin
  perform from relevo.inboxes b where b.id = any (ids) order by b.id for update;
  delete from relevo.inboxes b
   where b.id = any (ids)
     and not exists (select from relevo.former_phones f where f.inbox_id = b.id)
     and not exists (select from relevo.device_installations i where i.owner = b.owner and i.project = b.project)
     and not exists (select from relevo.kept_inbox_items k where k.inbox_id = b.id)
     and not exists (select from relevo.event_owners o where o.owner = b.owner and o.inbox_place is not null);
end
$$;

revoke all on function relevo.delete_empty_inboxes from public;
