-- Writes a line for each transaction that touched a delivery: where the delivery is and what stands of it when the transaction commits.
-- Only tests and `make chaos` load this. Lines are in the order of commits: a lock is held from the first line of a transaction to its end.

create schema relevo_trace;

create table relevo_trace.steps (
  n             bigint generated always as identity primary key,
  xid           xid8 not null default pg_current_xact_id(),
  delivery_id   bigint not null,
  at_most_once  boolean not null,
  max_attempts  int, -- of its type; null: as the setting says
  status        text not null,
  attempts      int not null,
  place         text, -- 'queue', or the token of the claim that holds it
  is_journalled boolean not null, -- whether that claim has a request with it that is not answered
  has_late      boolean not null, -- whether it is open, and a ticket that came late will close it
  unique (xid, delivery_id)
);

-- Notes where these deliveries are now; once per transaction, which is at its end, for the triggers are deferred.
create function relevo_trace.note(touched bigint[]) returns void
  language plpgsql security definer
as $$
begin
  perform pg_advisory_xact_lock(7390);
  insert into relevo_trace.steps (delivery_id, at_most_once, max_attempts, status, attempts, place, is_journalled, has_late)
  select d.id, coalesce(e.at_most_once, d.at_most_once), t.max_attempts, d.status, d.attempt_count,
         coalesce((select 'queue' from relevo.due_chunks q where q.event_id in (d.notification_event_id, 0) and d.id = any (q.ids) limit 1),
                  (select c.token::text from relevo.claims c where c.cycle <> 'receipt' and d.id = any (c.ids) limit 1)),
         exists (select from relevo.push_requests r join relevo.claims c on c.token = r.claim_token
                  where r.answered_at is null and d.id = any (r.ids) and d.id = any (c.ids)),
         d.status in ('pending', 'retryable') and exists (select from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id
                    and l.ticket_id is distinct from d.provider_ticket_id)
    from relevo.notification_deliveries d
    left join relevo.notification_events e on e.id = d.notification_event_id
    left join relevo.event_types t on t.event_type = d.event_type
   where d.id = any (touched)
   order by d.id
  on conflict do nothing;
end
$$;

create function relevo_trace.note_one() returns trigger language plpgsql security definer as $$
begin
  perform relevo_trace.note(array[coalesce(new.id, old.id)]);
  return null;
end $$;

create function relevo_trace.note_list() returns trigger language plpgsql security definer as $$
begin
  perform relevo_trace.note(coalesce(old.ids, '{}') || coalesce(new.ids, '{}'));
  return null;
end $$;

create function relevo_trace.note_ticket() returns trigger language plpgsql security definer as $$
begin
  perform relevo_trace.note(array[new.delivery_id]);
  return null;
end $$;

create constraint trigger trace after insert or update on relevo.notification_deliveries
  deferrable initially deferred for each row execute function relevo_trace.note_one();
create constraint trigger trace after insert or update or delete on relevo.claims
  deferrable initially deferred for each row execute function relevo_trace.note_list();
create constraint trigger trace after insert or delete on relevo.due_chunks
  deferrable initially deferred for each row execute function relevo_trace.note_list();
create constraint trigger trace after insert or update on relevo.push_requests
  deferrable initially deferred for each row execute function relevo_trace.note_list();
create constraint trigger trace after insert on relevo.late_tickets
  deferrable initially deferred for each row execute function relevo_trace.note_ticket();
