-- Writes those of some resolved installations that are there already, and returns how many. A field that is not given stays, except whether it
-- may receive pushes: another registration switches them on. The choices of a former owner go with that owner: preferences, opt-outs, quiet hours and attributes
-- are those of a new phone. Its attributes belong to its project, too.
create or replace function relevo.update_installations(resolved jsonb) returns int
  language plpgsql volatile
  set enable_seqscan = off -- lookups only
as $$
declare
  written int;
  passed_on uuid[] := array(select i.installation_id from jsonb_array_elements(resolved) as e(i)
                              cross join lateral (select i.installation_id from relevo.device_installations i
                                                   where i.installation_id = (e.i ->> 'installation_id')::uuid and i.owner is not null
                                                     and e.i ? 'owner' and i.owner is distinct from e.i ->> 'owner' offset 0) i);
  -- in another project the phone is somebody else's, unless equal owner names are one person
  moved uuid[] := array(select i.installation_id from jsonb_array_elements(resolved) as e(i)
                          cross join lateral (select i.installation_id from relevo.device_installations i
                                               where i.installation_id = (e.i ->> 'installation_id')::uuid and e.i ? 'project'
                                                 and i.project <> coalesce(e.i ->> 'project', 'default')
                                                 and (i.owner is null or relevo.project_of_owners() is not null) offset 0) i);
begin
  update relevo.device_installations i
     set token = case when g.i ? 'token' then g.i ->> 'token' else i.token end,
         token_version = i.token_version + (g.i ? 'token' and relevo.token_name(i.provider, i.part, i.token) is distinct from g.name)::int,
         token_confirmed_at = case when g.name is not null then now() else i.token_confirmed_at end,
         provider = g.i ->> 'provider', platform = g.i ->> 'platform', part = g.i ->> 'part',
         project = case when g.i ? 'project' then coalesce(g.i ->> 'project', 'default') else i.project end,
         locale = case when g.i ? 'locale' then g.i ->> 'locale' else i.locale end,
         timezone = case when g.i ? 'timezone' then g.i ->> 'timezone' else i.timezone end,
         owner = case when g.i ? 'owner' then g.i ->> 'owner' else i.owner end,
         owner_since = case when i.installation_id = any (moved) then now() else i.owner_since end,
         opt_outs = case when g.i ? 'opt_outs' then array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]')))
                         when i.installation_id = any (passed_on) then '{}' else i.opt_outs end,
         quiet = case when i.installation_id = any (passed_on) then null else i.quiet end,
         attributes = case when coalesce(g.i -> 'attributes', 'null') <> 'null'
                           then relevo.changed_attributes(case when i.installation_id <> all (passed_on || moved) then i.attributes end, g.i -> 'attributes')
                           when i.installation_id = any (passed_on || moved) then null else i.attributes end,
         push_capable = coalesce((g.i ->> 'push_capable')::boolean, true), permission = coalesce(g.i ->> 'permission', 'granted'),
         active = true, updated_at = now(),
         invalidated_at = case when g.i ? 'token' then null else i.invalidated_at end,
         invalid_reason = case when g.i ? 'token' then null else i.invalid_reason end
    from (select e.i, (e.i ->> 'installation_id')::uuid as id, relevo.token_name(e.i ->> 'provider', e.i ->> 'part', e.i ->> 'token') as name
            from jsonb_array_elements(resolved) as e(i)) g
   where i.installation_id = g.id;
  get diagnostics written = row_count;
  if passed_on <> '{}' then
    delete from relevo.notification_preferences p where p.installation_id = any (passed_on);
    insert into relevo.notification_preferences (installation_id, name) select u.id, 'default' from unnest(passed_on) as u(id);
  end if;
  return written;
end
$$;

revoke all on function relevo.update_installations from public;
