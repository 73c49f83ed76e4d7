-- Locks the events that are for one of some installations alone, or for an owner alone, also on a phone that was the owner's. Before the phones, as a settle does, which notes an
-- event's first push and then disables tokens: no deadlock.
create or replace function relevo.lock_personal_events(installations uuid[], of_owner text) returns void
  language plpgsql volatile
as $$
begin
  perform from relevo.notification_events e
    where e.id = any (array(
            select a.event_id from relevo.event_audience a
             where a.installation_id = any (installations)
               and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> a.installation_id)
            union all
            select o.event_id from relevo.event_owners o
             where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)
            union all
            select unnest(relevo.told_on_former_phones(of_owner, null))))
    order by e.id for update;
end
$$;

revoke all on function relevo.lock_personal_events from public;
