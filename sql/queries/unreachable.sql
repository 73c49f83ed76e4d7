-- name: report_unreachable
-- Writes to a worker's row which push services its process cannot reach, since when, and when it tries again.
update relevo.workers w
   set unreachable = coalesce((select jsonb_agg(jsonb_build_object('service', u.service, 'reason', u.reason, 'failures', u.failures,
                                        'since', now() - u.since_s * interval '1 second', 'retry_at', now() + u.retry_s * interval '1 second'))
                                 from jsonb_to_recordset(%(unreachable)s) as u(service text, reason text, failures int, since_s float8, retry_s float8)), '[]')
 where w.worker_id = %(worker_id)s;

-- name: find_reaching_worker
-- Finds another worker that sends pushes and has not reported a push service as unreachable.
select w.worker_id
  from relevo.workers w
 where w.worker_id <> %(worker_id)s and relevo.is_alive(w) and w.stopping_at is null and w.rests_because is null
   and 'dispatch' = any (w.cycles)
   and not w.unreachable @> jsonb_build_array(jsonb_build_object('service', %(service)s::text))
 limit 1;
