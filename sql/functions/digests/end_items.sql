-- Writes into deliveries why no digest tells their events, which were gathered for the phones beside them. Of a month on its way to the archive nothing is written.
create or replace function relevo.end_items(seqs bigint[], events bigint[], codes text[], at timestamptz) returns void
  language plpgsql volatile
as $$
declare
  days date[] := relevo.hold_open(array(select distinct e.event_day from relevo.notification_events e where e.id = any (events) and e.event_day is not null));
begin
  update relevo.notification_deliveries d
     set last_error_code = t.code, last_error_message = relevo.why_undigested(t.code), updated_at = at
    from (select e.event_day, u.event_id, i.installation_id, u.code
            from unnest(seqs, events, codes) as u(seq, event_id, code)
            cross join lateral (select i.installation_id from relevo.device_installations i where i.seq = u.seq offset 0) i
            cross join lateral (select e.event_day from relevo.notification_events e where e.id = u.event_id offset 0) e
           where e.event_day = any (days)) t
   where d.event_day = t.event_day and d.notification_event_id = t.event_id and d.installation_id = t.installation_id and d.last_error_code = 'in_digest';
end
$$;

revoke all on function relevo.end_items from public;
