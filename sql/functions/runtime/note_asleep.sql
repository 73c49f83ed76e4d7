-- Trigger: takes the mark of a cycle that is awake before its line says that it sleeps, whichever version of Relevo writes that.
create or replace function relevo.note_asleep() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform setval(relevo.awake_marker(new.cycle), 0);
  return null;
end
$$;

revoke all on function relevo.note_asleep from public;
