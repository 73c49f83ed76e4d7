-- Trigger: notes that the pushes of a phone go elsewhere from now on, so that what waits for it is brought there.
create or replace function relevo.note_moved_phone() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  insert into relevo.moved_phones (installation_id) values (new.installation_id);
  return null;
end
$$;

revoke all on function relevo.note_moved_phone from public;
