-- name: write_event_type
-- Sets what differs for one event type: what is not given stays, null follows the settings again.
select relevo.write_event_type(%(event_type)s, %(given)s::jsonb);

-- name: reset_event_type
-- Lets an event type follow the settings again; returns whether it differed.
select relevo.reset_event_type(%(event_type)s);

-- name: list_event_types
-- Lists the event types that differ from the settings.
select t.event_type, t.lease_ms, t.max_attempts, t.retry_base_ms, t.retry_max_ms, t.retry_jitter_ms, t.retry_multiplier, t.ttl_s, t.lane, t.at_most_once,
       t.inbox, t.inbox_days, t.opens, t.complete_on, t.quiet, t.quiet_max_wait_s, t.quiet_deadline, t.quiet_spread_s, t.batch_window_s, t.batch_longest_s,
       t.batch_first, t.updated_at
  from relevo.event_types t order by t.event_type;
