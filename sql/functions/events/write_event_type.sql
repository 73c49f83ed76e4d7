-- Sets the settings of one event type: a field that is left out stays as it is, null makes the type follow the general setting, and a window of 0 s
-- is none. Settings apply at the next enqueue, claim and settle. For a type of batches it records which settings are its own; in all others that
-- type follows its events' type.
create or replace function relevo.write_event_type(of_type text, given jsonb) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  tells_batches boolean := of_type like '%.batch';
  own_now text[] := array(select g.key from jsonb_each(given) as g(key, value) where g.value <> 'null');
begin
  insert into relevo.event_types (event_type, own) values (of_type, case when tells_batches then '{}'::text[] end) on conflict do nothing;
  update relevo.event_types t
     set (lease_ms, max_attempts, retry_base_ms, retry_max_ms, retry_jitter_ms, retry_multiplier, ttl_s, lane, at_most_once, inbox, inbox_days, opens, complete_on, quiet,
          quiet_max_wait_s, quiet_deadline, quiet_spread_s, batch_window_s, batch_longest_s, batch_first)
       = (select r.lease_ms, r.max_attempts, r.retry_base_ms, r.retry_max_ms, r.retry_jitter_ms, r.retry_multiplier, r.ttl_s, r.lane, r.at_most_once, r.inbox, r.inbox_days, r.opens,
                 r.complete_on, r.quiet, r.quiet_max_wait_s, r.quiet_deadline, r.quiet_spread_s, nullif(r.batch_window_s, 0), nullif(r.batch_longest_s, 0), r.batch_first
            from jsonb_populate_record(t, given) r),
         own = case when t.own is not null
                    then array(select u.name from unnest(t.own || own_now) as u(name) where given -> u.name is distinct from 'null' group by u.name order by u.name) end,
         updated_at = now()
   where t.event_type = of_type;
  perform relevo.follow_types(case when tells_batches then array[of_type, left(of_type, -6)] else array[of_type] end);
end
$$;

revoke all on function relevo.write_event_type from public;
