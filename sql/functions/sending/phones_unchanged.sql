-- Returns whether none of the phones of a wave changed since it was claimed: each has the token it had, and may receive what all of these
-- events say. `made` is when the first of the wave's deliveries was made: false if a phone was handled later, or an owner handled one of the
-- events; then each is looked at closely.
-- It earns 9 % of the row personal_dispatch of `make bench ARGS="--only personal"`, run with it and with look_at_phones in turns.
create or replace function relevo.phones_unchanged(installations uuid[], versions int[], events bigint[], made timestamptz) returns boolean
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off -- lookups only
  set plan_cache_mode = force_generic_plan
as $$
declare
  categories text[] := array(select e.category from relevo.notification_events e where e.id = any (events) and e.category is not null);
  to_accept text[] := array(select c.category from relevo.categories c where c.category = any (categories) and c.rule = 'off');
begin
  return not exists (select from relevo.event_completions c where c.event_id = any (events))
    and not exists (
      select from unnest(installations, versions) as w(installation_id, token_version)
        left join relevo.device_installations i on i.installation_id = w.installation_id
       where (i.token_version = w.token_version and relevo.may_receive(i) and (i.handled_before is null or i.handled_before < made)
              and (i.opt_outs = '{}' or not i.opt_outs && categories) and (i.refused = '{}' or not i.refused && categories)
              and (to_accept = '{}' or to_accept <@ i.accepted)) is not true);
end
$$;

revoke all on function relevo.phones_unchanged from public;
