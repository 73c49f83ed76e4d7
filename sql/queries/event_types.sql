-- name: set_event_type
-- Sets what differs for one event type, leaving alone what is not given; it applies at the next enqueue, claim and settle. A window of 0 s is none.
-- Of a type that tells batches it is noted what was set for itself.
insert into relevo.event_types as t (event_type, lease_ms, max_attempts, retry_base_ms, retry_max_ms, retry_jitter_ms, retry_multiplier, ttl_s, lane,
                                     at_most_once, inbox, inbox_days, opens, complete_on, quiet, quiet_max_wait_s, quiet_deadline, quiet_spread_s,
                                     batch_window_s, batch_longest_s, batch_first, own)
values (%(event_type)s, %(lease_ms)s, %(max_attempts)s, %(retry_base_ms)s, %(retry_max_ms)s, %(retry_jitter_ms)s, %(retry_multiplier)s, %(ttl_s)s,
        %(lane)s, %(at_most_once)s, %(inbox)s, %(inbox_days)s, %(opens)s, %(complete_on)s, %(quiet)s, %(quiet_max_wait_s)s,
        %(quiet_deadline)s, %(quiet_spread_s)s, nullif(%(batch_window_s)s::int, 0), nullif(%(batch_longest_s)s::int, 0), %(batch_first)s, %(own)s::text[])
on conflict (event_type) do update
   set lease_ms = coalesce(excluded.lease_ms, t.lease_ms), max_attempts = coalesce(excluded.max_attempts, t.max_attempts),
       retry_base_ms = coalesce(excluded.retry_base_ms, t.retry_base_ms), retry_max_ms = coalesce(excluded.retry_max_ms, t.retry_max_ms),
       retry_jitter_ms = coalesce(excluded.retry_jitter_ms, t.retry_jitter_ms),
       retry_multiplier = coalesce(excluded.retry_multiplier, t.retry_multiplier), ttl_s = coalesce(excluded.ttl_s, t.ttl_s),
       lane = coalesce(excluded.lane, t.lane), at_most_once = coalesce(excluded.at_most_once, t.at_most_once),
       inbox = coalesce(excluded.inbox, t.inbox), inbox_days = coalesce(excluded.inbox_days, t.inbox_days),
       opens = coalesce(excluded.opens, t.opens), complete_on = coalesce(excluded.complete_on, t.complete_on), quiet = coalesce(excluded.quiet, t.quiet),
       quiet_max_wait_s = coalesce(excluded.quiet_max_wait_s, t.quiet_max_wait_s), quiet_deadline = coalesce(excluded.quiet_deadline, t.quiet_deadline),
       quiet_spread_s = coalesce(excluded.quiet_spread_s, t.quiet_spread_s),
       batch_window_s = case when %(batch_window_s)s::int is null then t.batch_window_s else excluded.batch_window_s end,
       batch_longest_s = case when %(batch_longest_s)s::int is null then t.batch_longest_s else excluded.batch_longest_s end,
       batch_first = coalesce(excluded.batch_first, t.batch_first), updated_at = now(),
       own = case when t.own is not null then array(select unnest(t.own) union select unnest(excluded.own) order by 1) end;

-- name: clear_event_type
-- Lets an event type follow the settings in what is named; of a type that tells batches, the type that it tells batches of.
update relevo.event_types t
   set (lease_ms, max_attempts, retry_base_ms, retry_max_ms, retry_jitter_ms, retry_multiplier, ttl_s, lane, at_most_once, inbox, inbox_days, opens, complete_on, quiet,
        quiet_max_wait_s, quiet_deadline, quiet_spread_s, batch_window_s, batch_longest_s, batch_first)
     = (select r.lease_ms, r.max_attempts, r.retry_base_ms, r.retry_max_ms, r.retry_jitter_ms, r.retry_multiplier, r.ttl_s, r.lane, r.at_most_once, r.inbox, r.inbox_days, r.opens,
        r.complete_on, r.quiet, r.quiet_max_wait_s, r.quiet_deadline, r.quiet_spread_s, r.batch_window_s, r.batch_longest_s, r.batch_first
          from jsonb_populate_record(t, (select jsonb_object_agg(u.name, null) from unnest(%(removed)s::text[]) as u(name))) r),
       own = case when t.own is not null then array(select unnest(t.own) except select unnest(%(removed)s::text[]) order by 1) end
 where t.event_type = %(event_type)s;

-- name: follow_types
-- Lets the types that tell batches of some types follow what was changed about those.
select relevo.follow_types(%(event_types)s::text[]);

-- name: reset_event_type
-- Lets an event type follow the settings again; returns nothing if it did.
delete from relevo.event_types where event_type = %(event_type)s returning event_type;

-- name: list_event_types
-- Lists the event types that differ from the settings.
select t.event_type, t.lease_ms, t.max_attempts, t.retry_base_ms, t.retry_max_ms, t.retry_jitter_ms, t.retry_multiplier, t.ttl_s, t.lane, t.at_most_once,
       t.inbox, t.inbox_days, t.opens, t.complete_on, t.quiet, t.quiet_max_wait_s, t.quiet_deadline, t.quiet_spread_s, t.batch_window_s, t.batch_longest_s,
       t.batch_first, t.updated_at
  from relevo.event_types t order by t.event_type;
