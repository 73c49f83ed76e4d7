-- Drops a month that was verified and whose grace is over: exactly the relation that was exported, or nothing.
create or replace function relevo.drop_retired(of_entity text, of_month date, at timestamptz) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  x relevo.archive_exports;
begin
  select * into x from relevo.archive_exports
   where entity = of_entity and month = of_month and state = 'verified' and drop_eligible_at <= relevo.now(at) for update;
  if not found then
    return false;
  end if;
  execute format('lock table relevo_archive.%I in access exclusive mode', x.relation); -- from here on the name is this relation's
  if not relevo.is_sealed_as(format('relevo_archive.%I', x.relation)::regclass, x.export_id) then
    raise exception using errcode = 'object_not_in_prerequisite_state',
      message = format('relevo_archive.%I is not the relation that was exported: it does not bear the seal of export %s', x.relation, x.export_id),
      hint = 'Rename the exported table back to its name.';
  end if;
  execute format('drop table relevo_archive.%I', x.relation);
  update relevo.archive_exports set state = 'dropped', dropped_at = relevo.now(at), updated_at = now(), last_error = null
   where entity = of_entity and month = of_month;
  return true;
end
$$;

revoke all on function relevo.drop_retired from public;
