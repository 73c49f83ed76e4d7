-- name: is_bulk_left
-- Tells whether any bulk is still queued: a rate that was measured beside an empty queue says nothing.
select exists (select from relevo.due_chunks q where q.lane = 'bulk' and q.event_type = 'bench');
