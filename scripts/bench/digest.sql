-- name: load_phones
-- Makes installations by the number, in one time zone.
insert into relevo.device_installations (token, project, timezone)
select 'ExponentPushToken[' || n || ']', 'default', 'America/Santiago' from generate_series(1, %(phones)s::int) n;

-- name: ask_for_a_quarter
-- Gives each installation a preference that a quarter of the tenders match, told at once or in a daily digest.
insert into relevo.notification_preferences (installation_id, name, tipo, delivery)
select i.installation_id, 'default', 'T' || i.seq %% 4, %(delivery)s from relevo.device_installations i
on conflict (installation_id, name) do update set delivery = excluded.delivery;

-- name: refresh
-- Lets the planner see what was loaded.
analyze relevo.device_installations, relevo.notification_preferences, relevo.preference_index;

-- name: settle_down
-- Keeps what was written before out of the figures.
checkpoint;

-- name: come_due
-- Lets the slots close now.
update relevo.digest_slots set closes_at = now();

-- name: count_deliveries
-- Counts the deliveries of one kind of events.
select count(*) from relevo.notification_deliveries d where (d.event_type = 'relevo.digest') = %(digests)s;
