-- Forgets when some installations opened what, in news of it, too, and into whose inbox it came, but for months on their way to the archive, which hold no name.
create or replace function relevo.forget_opens(of_installations uuid[]) returns void
  language plpgsql volatile
as $$
declare
  open_days date[];
begin
  open_days := relevo.hold_open(array(select distinct d.event_day from relevo.notification_deliveries d
                                       where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id is not null)));
  perform from relevo.notification_deliveries d
   where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id is not null) and d.event_day = any (open_days)
   order by d.event_day, d.id for no key update; -- in the order of every writer
  update relevo.notification_deliveries d set opened_at = null, opened_action = null, inbox_id = null
   where d.installation_id = any (of_installations) and (d.opened_at is not null or d.inbox_id is not null) and d.event_day = any (open_days);
  if found then -- news of it are numbered without gaps: they stay, and say nothing
    update relevo.news_inbox n set data = n.data || '{"action": null, "opened_at": null}'
     where n.kind = 'delivery.opened' and n.installation_id = any (of_installations);
    update relevo.news n set data = n.data || '{"action": null, "opened_at": null}'
     where n.kind = 'delivery.opened' and n.installation_id = any (of_installations);
  end if;
end
$$;

revoke all on function relevo.forget_opens from public;
