-- Sets what differs for one event type: {"event_type": "offer", "lane": "urgent", "quiet": "ignore", "batch_window_s": 600, "inbox_days": 30, …}. A field that is left
-- out stays as it is; null lets the type follow the general setting again. It holds for all projects, and also for what waits. Returns the type's settings.
create or replace function relevo.set_event_type(asked jsonb) returns jsonb
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  number_of record;
  choice_of record;
  least_lease int;
begin
  if jsonb_typeof(asked) is distinct from 'object' then
    perform relevo.refuse('an event type must be a JSON object');
  end if;
  if asked ->> 'event_type' is null then
    perform relevo.refuse('event_type must be given');
  end if;
  perform relevo.check_texts(asked, '{"event_type": 100}');
  if starts_with(asked ->> 'event_type', 'relevo.') and asked ->> 'event_type' <> 'relevo.digest' then
    perform relevo.refuse('event_type must not begin with relevo., which is for Relevo itself; digests are relevo.digest');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(asked) as k
   where k <> all (array['event_type', 'lease_ms', 'max_attempts', 'retry_base_ms', 'retry_max_ms', 'retry_jitter_ms', 'retry_multiplier', 'ttl_s', 'lane', 'at_most_once',
                         'inbox', 'inbox_days', 'opens', 'complete_on', 'quiet', 'quiet_max_wait_s', 'quiet_deadline', 'quiet_spread_s', 'batch_window_s', 'batch_longest_s',
                         'batch_first']);
  if wrong is not null then
    perform relevo.refuse(format('an event type has no field %s', wrong));
  end if;
  select coalesce(max(w.lease_ms), 60000) into least_lease from relevo.workers w where relevo.is_alive(w); -- a shorter one may end within a request
  for number_of in
    select * from (values ('lease_ms', least(least_lease, 3600000), 3600000, true), ('max_attempts', 1, 100, true), ('retry_base_ms', 1, 86400000, true),
                          ('retry_max_ms', 1, 86400000, true), ('retry_jitter_ms', 0, 3600000, true), ('retry_multiplier', 1, 10, false), ('ttl_s', 1, 2419200, true),
                          ('inbox_days', 1, 3650, true), ('quiet_max_wait_s', 60, 604800, true), ('quiet_spread_s', 0, 7200, true), ('batch_window_s', 0, 86400, true),
                          ('batch_longest_s', 0, 86400, true)) as n(name, low, high, whole)
  loop
    perform relevo.check_number(asked, number_of.name, number_of.low, number_of.high, number_of.whole);
  end loop;
  perform relevo.check_boolean(asked, b.name) from unnest(array['at_most_once', 'inbox', 'opens', 'batch_first']) as b(name);
  for choice_of in
    select * from (values ('lane', array['urgent', 'bulk']), ('complete_on', array['read', 'opened']), ('quiet', array['wait', 'silent', 'ignore']),
                          ('quiet_deadline', array['silent', 'expired'])) as c(name, values_of)
  loop
    if coalesce(asked -> choice_of.name, 'null') <> 'null' and asked ->> choice_of.name <> all (choice_of.values_of) then
      perform relevo.refuse(format('%s must be %s or null, got %s', choice_of.name, array_to_string(choice_of.values_of, ', '), relevo.shown(asked -> choice_of.name)));
    end if;
  end loop;
  if (asked ->> 'batch_window_s')::numeric > 0 and length(asked ->> 'event_type') > 94 then
    perform relevo.refuse('event_type must have at most 94 characters where its events are gathered');
  end if;
  begin
    perform relevo.write_event_type(asked ->> 'event_type', asked - 'event_type');
  exception when check_violation then
    perform relevo.refuse('retry_base_ms must not be above retry_max_ms');
  end;
  return (select to_jsonb(t) - 'own' from relevo.event_types t where t.event_type = asked ->> 'event_type');
end
$$;

revoke all on function relevo.set_event_type from public;
