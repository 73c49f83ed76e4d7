-- Gives the types that tell the batches of some types what those say now, but for what was set for them themselves (`own`). One that is not there yet is made if
-- its type gathers; one that has nothing of its own goes with its type.
create or replace function relevo.follow_types(of_types text[]) returns void
  language sql volatile
as $$
  delete from relevo.event_types f
   where f.own = '{}' and f.event_type in (select u.name || '.batch' from unnest(of_types) as u(name)
                                            where not exists (select from relevo.event_types t where t.event_type = u.name));
  insert into relevo.event_types as f (event_type, own, lease_ms, max_attempts, retry_base_ms, retry_max_ms, retry_jitter_ms, retry_multiplier, at_most_once, lane, ttl_s,
                                       opens, complete_on, quiet, quiet_max_wait_s, quiet_deadline, quiet_spread_s)
  select u.name || '.batch', '{}', t.lease_ms, t.max_attempts, t.retry_base_ms, t.retry_max_ms, t.retry_jitter_ms, t.retry_multiplier, t.at_most_once, t.lane,
         t.ttl_s, t.opens, t.complete_on, t.quiet, t.quiet_max_wait_s, t.quiet_deadline, t.quiet_spread_s
    from unnest(of_types) as u(name)
    left join relevo.event_types t on t.event_type = u.name
   where length(u.name) <= 94
     and (t.batch_window_s is not null or exists (select from relevo.event_types f where f.event_type = u.name || '.batch' and f.own is not null))
   order by u.name
  on conflict (event_type) do update
     set lease_ms = case when 'lease_ms' = any (f.own) then f.lease_ms else excluded.lease_ms end,
         max_attempts = case when 'max_attempts' = any (f.own) then f.max_attempts else excluded.max_attempts end,
         retry_base_ms = case when 'retry_base_ms' = any (f.own) then f.retry_base_ms else excluded.retry_base_ms end,
         retry_max_ms = case when 'retry_max_ms' = any (f.own) then f.retry_max_ms else excluded.retry_max_ms end,
         retry_jitter_ms = case when 'retry_jitter_ms' = any (f.own) then f.retry_jitter_ms else excluded.retry_jitter_ms end,
         retry_multiplier = case when 'retry_multiplier' = any (f.own) then f.retry_multiplier else excluded.retry_multiplier end,
         at_most_once = case when 'at_most_once' = any (f.own) then f.at_most_once else excluded.at_most_once end,
         lane = case when 'lane' = any (f.own) then f.lane else excluded.lane end,
         ttl_s = case when 'ttl_s' = any (f.own) then f.ttl_s else excluded.ttl_s end,
         opens = case when 'opens' = any (f.own) then f.opens else excluded.opens end,
         complete_on = case when 'complete_on' = any (f.own) then f.complete_on else excluded.complete_on end,
         quiet = case when 'quiet' = any (f.own) then f.quiet else excluded.quiet end,
         quiet_max_wait_s = case when 'quiet_max_wait_s' = any (f.own) then f.quiet_max_wait_s else excluded.quiet_max_wait_s end,
         quiet_deadline = case when 'quiet_deadline' = any (f.own) then f.quiet_deadline else excluded.quiet_deadline end,
         quiet_spread_s = case when 'quiet_spread_s' = any (f.own) then f.quiet_spread_s else excluded.quiet_spread_s end, updated_at = now()
   where f.own is not null;
$$;

revoke all on function relevo.follow_types from public;
