-- Adds a fanned-out event to the inboxes of those of its owners whom it reached on no phone, if they have the event's attributes.
create or replace function relevo.note_missed_owners(of_event bigint, of_day date) returns void
  language plpgsql volatile
as $$
declare
  wanted jsonb;
  owners_in text;
begin
  select e.match_where, coalesce(e.project, relevo.project_of_owners(), '') into wanted, owners_in from relevo.notification_events e where e.id = of_event;
  update relevo.event_owners o
     set inbox_place = nextval('relevo.delivery_ids'), inbox_project = coalesce((select e.project from relevo.notification_events e where e.id = of_event), '')
   where o.event_id = of_event and o.inbox_place is null
     and (wanted is null or relevo.attribute_mismatch((relevo.rules_for_phone(o.owner, owners_in, null)).attributes, wanted) is null)
     and not exists (select from relevo.device_installations i
                       cross join lateral (select from relevo.notification_deliveries d -- of before 0.4.0, without inbox
                                            where d.inbox_id is null and d.event_day = of_day and (d.notification_event_id, d.installation_id) >= (of_event, i.installation_id)
                                              and (d.notification_event_id, d.installation_id) <= (of_event, i.installation_id) offset 0) d
                      where i.owner = o.owner)
     and o.owner not in (select b.owner from relevo.notification_deliveries d join relevo.inboxes b on b.id = d.inbox_id
                          where d.event_day = of_day and d.notification_event_id = of_event and b.owner is not null);
end
$$;

revoke all on function relevo.note_missed_owners from public;
