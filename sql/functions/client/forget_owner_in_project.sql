-- Deletes an owner as far as one project goes: the installations there, and what its events said to them alone.
create or replace function relevo.forget_owner_in_project(of_owner text, of_project text) returns integer language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp
as $$
declare
  phones uuid[];
  many int;
  owners_in text := relevo.project_of_owners();
begin
  perform relevo.check_owner(of_owner);
  perform relevo.lock_owner(of_owner);
  perform relevo.lock_shared('keep_inbox_items'); -- what is being kept is found below
  phones := array(select i.installation_id from relevo.device_installations i where i.owner = of_owner and i.project = of_project);
  perform from relevo.inboxes where owner = of_owner and project = of_project order by id for update; -- whoever marks an item locks the inbox first
  perform relevo.forget_opens(phones); -- deliveries are locked before events and phones, as by a settle
  perform relevo.lock_personal_events(phones, of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i
           where i.owner = of_owner and i.project = of_project order by i.installation_id for update) i;
  perform relevo.blank_events(relevo.told_on_former_phones(of_owner, of_project), 'its owner was forgotten');
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
      join relevo.notification_events e on e.id = o.event_id and coalesce(e.project, owners_in) = of_project
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners o using relevo.notification_events e
   where o.owner = of_owner and e.id = o.event_id and coalesce(e.project, owners_in) = of_project;
  delete from relevo.event_completions c using relevo.notification_events e
   where c.owner = of_owner and e.id = c.event_id and coalesce(e.project, owners_in) = of_project;
  delete from relevo.former_phones f using relevo.inboxes b where b.owner = of_owner and b.project = of_project and f.inbox_id = b.id;
  delete from relevo.inboxes where owner = of_owner and project = of_project;
  delete from relevo.owner_rules where owner = of_owner and project = of_project;
  delete from relevo.consents where owner = of_owner and project = of_project;
  delete from relevo.consent_words where owner = of_owner and project = of_project;
  delete from relevo.shadow_sends where owner = of_owner and coalesce(project, of_project) = of_project;
  perform relevo.forget_batches('o:' || of_owner, of_project, 'its owner was forgotten');
  perform relevo.forget_cap_uses('o:' || of_owner, of_project);
  return many;
end
$$;

revoke all on function relevo.forget_owner_in_project from public;
