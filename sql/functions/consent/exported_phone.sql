-- Returns a phone as the export of its owner has it: its push token shortened, with its preferences.
create or replace function relevo.exported_phone(i relevo.device_installations) returns jsonb language sql stable
as $$
  select to_jsonb(i) - array['seq', 'token_version', 'for_news'] || jsonb_build_object('token', relevo.shown_token(i.provider, i.part, i.token), 'quiet', relevo.exported_hours(i.quiet), 'owner_quiet', relevo.exported_hours(i.owner_quiet), 'preferences', (
           select coalesce(jsonb_agg(to_jsonb(p) - 'installation_id' order by p.name), '[]') from relevo.notification_preferences p
            where p.installation_id = i.installation_id))
$$;

revoke all on function relevo.exported_phone from public;
