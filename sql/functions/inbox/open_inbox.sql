-- Returns the id of an inbox, which is made if it is not there yet; null if nothing leads to its owner. Whoever forgets the owner waits for this
-- one's phone or event, and finds the inbox then.
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
  if s.owner is not null then
    perform from relevo.device_installations i where i.owner = s.owner and i.project = s.project limit 1 for key share;
    if not found then
      perform from relevo.event_owners o where o.owner = s.owner and o.inbox_place is not null and o.inbox_project in (s.project, '') limit 1 for key share;
      if not found then
        return null;
      end if;
    end if;
  end if;
  insert into relevo.inboxes (project, owner, installation_id) values (s.project, s.owner, s.installation_id)
  on conflict do nothing returning id into opened;
  return coalesce(opened, (select b.id from relevo.inboxes b where b.owner = s.owner and b.project = s.project),
                  (select b.id from relevo.inboxes b where b.installation_id = s.installation_id));
end
$$;

revoke all on function relevo.open_inbox from public;
