-- name: load_installations
-- Makes installations by the number.
insert into relevo.device_installations (token, project)
select 'ExponentPushToken[' || n || ']', 'default' from generate_series(1, %(installations)s::int) n;

-- name: load_preferences
-- Gives each installation a preference: half ask for one tipo, the rest for a rubro, a region or a keyword of their own.
insert into relevo.notification_preferences (installation_id, name, tipo, rubro_prefix, region, keywords)
select i.installation_id, 'default',
       case when i.seq %% 10 < 5 then 'LE' end,
       case when i.seq %% 10 in (5, 6) then (10000000 + i.seq * 7919 %% 89999999)::text end,
       case when i.seq %% 10 = 7 then 'Comuna ' || i.seq %% 10000 end,
       case when i.seq %% 10 in (8, 9) then array['palabra' || i.seq * 31 %% 4000] end
  from relevo.device_installations i;

-- name: refresh
-- Lets the planner see what was loaded.
analyze relevo.device_installations, relevo.notification_preferences, relevo.preference_index;

-- name: scan_all
-- What fan-out would cost without an index: every preference is matched.
select count(distinct p.installation_id)
  from relevo.notification_events e
  join relevo.notification_preferences p on relevo.preference_matches(p, e)
  join relevo.device_installations i on i.installation_id = p.installation_id and relevo.may_receive(i)
 where e.id = (select max(n.id) from relevo.notification_events n);

-- name: copy_out
-- The rows of an event as COPY would load them for another one.
copy (select event_day, notification_event_id + 1000000, installation_id, event_type, provider, project, lane, at_most_once,
             deadline_at
        from relevo.notification_deliveries where notification_event_id = (select max(id) from relevo.notification_events)) to stdout;

-- name: copy_in
-- The same rows loaded plainly into the same table, with its indexes and checks.
copy relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane, at_most_once,
                                     deadline_at) from stdin;

-- name: forget_deliveries
-- Empties the deliveries between two measurements.
truncate relevo.notification_deliveries, relevo.due_chunks;

-- name: settle_down
-- Keeps yesterday's writes out of today's figures.
checkpoint;

-- name: make_quiet_hours
-- Makes quiet hours that last all of the week but a minute, in three zones.
insert into relevo.quiet_profiles (id, zone, windows)
select z.id, z.zone, int4multirange(int4range(0, 10079))
  from unnest(array['America/Santiago', 'Europe/Madrid', 'Asia/Kathmandu']) with ordinality as z(zone, id);

-- name: give_quiet_hours
-- Gives them to a tenth of the phones that a broad event is for.
update relevo.device_installations i set quiet = 1 + i.seq / 20 %% 3 where i.seq %% 20 = 0;

-- name: tidy_phones
-- Leaves nothing to be tidied up while it is measured.
vacuum (analyze) relevo.device_installations;
