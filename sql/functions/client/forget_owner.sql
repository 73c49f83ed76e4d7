-- Deletes an owner: the installations, what was said to them or to the owner alone, and the name; returns how many installations there were.
create or replace function relevo.forget_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  phones uuid[];
  many int;
begin
  perform relevo.check_owner(of_owner);
  perform relevo.lock_owner(of_owner);
  perform relevo.lock_shared('keep_inbox_items'); -- what is being kept is found below
  perform from relevo.inboxes where owner = of_owner order by id for update; -- whoever marks an item locks the inbox first
  phones := array(select i.installation_id from relevo.device_installations i where i.owner = of_owner);
  perform relevo.forget_opens(phones); -- deliveries are locked before events and phones, as by a settle
  perform relevo.lock_personal_events(phones, of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i where i.owner = of_owner order by i.installation_id for update) i;
  perform relevo.blank_events(relevo.told_on_former_phones(of_owner, null), 'its owner was forgotten');
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners where owner = of_owner;
  delete from relevo.event_completions where owner = of_owner;
  delete from relevo.former_phones f using relevo.inboxes b where b.owner = of_owner and f.inbox_id = b.id;
  delete from relevo.inboxes where owner = of_owner;
  delete from relevo.owner_rules where owner = of_owner;
  delete from relevo.consents where owner = of_owner;
  delete from relevo.consent_words where owner = of_owner;
  delete from relevo.shadow_sends where owner = of_owner;
  perform relevo.forget_batches('o:' || of_owner, null, 'its owner was forgotten');
  perform relevo.forget_cap_uses('o:' || of_owner, null);
  delete from relevo.shared_locks where key = hashtextextended('owner:' || of_owner, 0); -- locked alone above; whoever waits for it makes it anew
  return many;
end
$$;

revoke all on function relevo.forget_owner from public;
