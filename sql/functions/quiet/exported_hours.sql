-- Returns quiet hours as an export has them; null if there are none.
create or replace function relevo.exported_hours(profile int) returns jsonb language sql stable
  return (select jsonb_build_object('windows', relevo.shown_windows(p.windows), 'zone', nullif(p.zone, '')) from relevo.quiet_profiles p where p.id = profile);

revoke all on function relevo.exported_hours from public;
