-- Returns the id of an inbox, which is made if it is not there yet; null if nothing leads to its owner. Only who makes one locks a name first, which whoever forgets the owner, or
-- the phone without owner, locks alone before all else: no phone is locked here, as whoever registers locks inboxes before phones.
create or replace function relevo.open_inbox(s relevo.inbox_subject) returns bigint
  language plpgsql volatile
as $$
declare
  opened bigint;
begin
  if s.inbox_id is not null then
    perform from relevo.inboxes b where b.id = s.inbox_id for key share;
    return case when found then s.inbox_id end;
  end if;
  perform relevo.lock_shared(coalesce('owner:' || s.owner, 'phone:' || s.installation_id));
  if not exists (select from relevo.device_installations i where i.owner = s.owner and i.project = s.project)
     and not exists (select from relevo.device_installations i where i.installation_id = s.installation_id)
     and not exists (select from relevo.event_owners o where o.owner = s.owner and o.inbox_place is not null and o.inbox_project in (s.project, '')) then
    return null;
  end if;
  insert into relevo.inboxes (project, owner, installation_id) values (s.project, s.owner, s.installation_id)
  on conflict do nothing returning id into opened;
  return coalesce(opened, (select b.id from relevo.inboxes b where b.owner = s.owner and b.project = s.project),
                  (select b.id from relevo.inboxes b where b.installation_id = s.installation_id));
end
$$;

revoke all on function relevo.open_inbox from public;
