-- Deletes a person: the installation with all that leads to anybody, and what was said to it alone; a hash of its key stays, for dedup. Its
-- deliveries get a random key. Items of its former owners stay in their inboxes.
create or replace function relevo.forget_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  owned boolean;
  known boolean;
  alone bigint[];
  inboxes bigint[];
begin
  perform relevo.lock_owner(i.owner) from relevo.device_installations i where i.installation_id = installation and i.owner is not null; -- as forget_owner does
  owned := found;
  if not owned then
    perform relevo.lock_alone('phone:' || installation); -- whoever makes its first inbox shares it
  end if;
  perform relevo.lock_shared('keep_inbox_items'); -- what is being kept is found below
  inboxes := relevo.inboxes_of_phones(array[installation]);
  perform from relevo.inboxes b where b.id = any (inboxes) order by b.id for update; -- whoever marks an item locks the inbox first
  perform relevo.forget_opens(array[installation]); -- deliveries are locked before events and phones, as by a settle
  perform relevo.lock_personal_events(array[installation], null);
  perform relevo.forget_digests(installation);
  delete from relevo.device_installations where installation_id = installation; -- a trigger notes for whose inbox it was
  known := found;
  alone := array(select a.event_id from relevo.event_audience a -- anew: one may have come meanwhile
                  where a.installation_id = installation
                    and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> installation));
  perform relevo.blank_events(alone, 'the installation was forgotten');
  delete from relevo.event_audience where installation_id = installation;
  delete from relevo.kept_inbox_items where installation_id = installation and inbox_id = any (inboxes);
  delete from relevo.former_phones where installation_id = installation and inbox_id = any (inboxes);
  perform relevo.delete_empty_inboxes(inboxes);
  delete from relevo.shadow_sends s where s.installation_id = installation;
  perform relevo.forget_batches('i:' || installation, null, 'the installation was forgotten');
  perform relevo.forget_cap_uses('i:' || installation, null);
  if not owned then
    delete from relevo.shared_locks where key = hashtextextended('phone:' || installation, 0); -- whoever waits for it makes it anew
  end if;
  return known or cardinality(alone) > 0;
end
$$;

revoke all on function relevo.forget_installation from public;
