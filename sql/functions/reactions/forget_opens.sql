-- Forgets when some installations opened pushes, also in news of that, and which items their owners got by them. Months on their way to the archive
-- are exempt, because they hold no name. Such a delivery gets the inbox 0, which is nobody's: a new registration of the phone is another owner's.
-- Items of former owners stay theirs.
create or replace function relevo.forget_opens(of_installations uuid[]) returns void
  language plpgsql volatile
as $$
declare
  inboxes bigint[] := relevo.inboxes_of_phones(of_installations);
  open_days date[];
begin
  open_days := relevo.hold_open(array(select distinct d.event_day from relevo.notification_deliveries d
                                       where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id = any (inboxes))));
  perform from relevo.notification_deliveries d
   where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id = any (inboxes)) and d.event_day = any (open_days)
   order by d.event_day, d.id for no key update; -- in the order of every writer
  update relevo.notification_deliveries d set opened_at = null, opened_action = null, inbox_id = case when d.inbox_id = any (inboxes) then 0 else d.inbox_id end
   where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id = any (inboxes)) and d.event_day = any (open_days);
  if found then -- news of it are numbered without gaps: they stay, and say nothing
    update relevo.news_inbox n set data = n.data || '{"action": null, "opened_at": null}'
     where n.kind = 'delivery.opened' and n.installation_id = any (of_installations);
    update relevo.news n set data = n.data || '{"action": null, "opened_at": null}'
     where n.kind = 'delivery.opened' and n.installation_id = any (of_installations);
  end if;
end
$$;

revoke all on function relevo.forget_opens from public;
