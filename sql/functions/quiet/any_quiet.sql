-- Returns whether quiet hours of one of some phones are active and one of some events obeys them by its rule; if so, the caller checks each phone.
-- Phones with the same hours are checked once, and without quiet hours nothing is looked up. It earns 31 % of the row dispatch of `make bench
-- ARGS="--only dispatch"` in a project with quiet hours, run with it and with quiet_now in turns.
create or replace function relevo.any_quiet(installations uuid[], events bigint[], given_at timestamptz, rules text[] default '{wait}')
  returns boolean
  language plpgsql stable
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan -- lookups only
as $$
declare
  at timestamptz := relevo.now(given_at);
  any_default boolean;
begin
  if not exists (select from relevo.quiet_profiles)
     or not exists (select from relevo.notification_events e left join relevo.event_types t on t.event_type = e.event_type
                     where e.id = any (events) and relevo.quiet_rule(e, t.quiet) = any (rules)) then
    return false;
  end if;
  any_default := exists (select from relevo.quiet_defaults);
  return exists (
    select from (select distinct i.quiet, i.owner_quiet, i.timezone, case when any_default then i.project end as project
                   from unnest(installations) as u(id)
                   cross join lateral (select i.quiet, i.owner_quiet, i.timezone, i.project from relevo.device_installations i
                                        where i.installation_id = u.id and (any_default or i.quiet is not null or i.owner_quiet is not null) offset 0) i) k
      cross join lateral relevo.quiet_of(k.quiet, k.owner_quiet, k.project, k.timezone) q
     where q.windows @> relevo.minute_of_week(at at time zone q.zone));
end
$$;

revoke all on function relevo.any_quiet from public;
