-- name: load_phones
-- Makes installations by the number.
insert into relevo.device_installations (token, project)
select 'ExponentPushToken[' || lpad(n::text, 20, '0') || ']', 'default' from generate_series(1, %(phones)s::int) n;

-- name: ask_for_few
-- Lets the first phones ask for tenders of one kind.
insert into relevo.notification_preferences (installation_id, name, tipo)
select i.installation_id, 'few', 'FEW' from relevo.device_installations i order by i.seq limit %(few)s;

-- name: refresh
-- Lets the planner see what was loaded.
analyze relevo.device_installations, relevo.notification_preferences, relevo.preference_index;

-- name: list_phones
-- Picks the first phones.
select i.installation_id from relevo.device_installations i order by i.seq limit %(count)s;

-- name: forget_queue
-- Empties the queue of what a measurement left open.
truncate relevo.due_chunks;

-- name: forget_open
-- Ends what a measurement left open.
update relevo.notification_deliveries set status = 'cancelled', completed_at = now() where status in ('pending', 'retryable');
