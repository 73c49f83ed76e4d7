-- Returns what an event is against a cap of somebody: `sent`, `open` if it may still be, or `unsent`, which does not count. One that is
-- not known any more counts as sent, and so does one that only shadow mode kept from being sent. Of an owner those deliveries count that were made for the owner in the cap's project, also to phones that
-- are another's by now, or deleted.
create or replace function relevo.counts_as(of_event bigint, of_cap int, subject text) returns text
  language sql stable
as $$
  select case when e.id is null then 'sent'
              else coalesce((select case when bool_or(d.status in ('ok', 'unconfirmed', 'unknown') or d.last_error_code = 'shadow') then 'sent'
                                         when bool_or(d.status = 'sent' or d.status in ('pending', 'retryable') and e.ended_at is null) then 'open' end
                               from (select i.installation_id from relevo.device_installations i
                                      where subject like 'o:%' and i.owner = substr(subject, 3) and i.project = c.project
                                     union
                                     select f.installation_id from relevo.former_phones f where f.inbox_id = b.id
                                     union
                                     select case when subject like 'i:%' then substr(subject, 3)::uuid end) i
                               cross join lateral (select d.status, d.last_error_code, d.inbox_id from relevo.notification_deliveries d
                                                    where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = i.installation_id offset 0) d
                              where b.id is null or d.inbox_id is null or d.inbox_id = b.id),
                            'unsent') end
    from (select) one
    left join relevo.notification_events e on e.id = of_event
    left join relevo.caps c on c.id = of_cap
    left join relevo.inboxes b on b.owner = substr(subject, 3) and b.project = c.project and subject like 'o:%'
$$;

revoke all on function relevo.counts_as from public;
