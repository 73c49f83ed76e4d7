-- needs relevo 0.1.0
-- What is looked for among runs, workers and personal events is found by a key, however many of them there are.

create index worker_runs_by_slot on relevo.worker_runs (cycle, source, slot_at) where slot_at is not null;

-- Both stand in no column that a heartbeat changes.
create index workers_alive on relevo.workers (worker_id) where stopped_at is null and lost_at is null;
create index workers_ended on relevo.workers (role, (greatest(stopped_at, lost_at))) where stopped_at is not null or lost_at is not null;

create index event_audience_phone on relevo.event_audience (installation_id);

-- In their order, so that a batch of a cancelled event's chunks is found without sorting all of them.
drop index relevo.due_chunks_event;
create index due_chunks_event on relevo.due_chunks (event_id, id);
