-- Trigger: notes since when a phone is dead, or that it is not any more.
create or replace function relevo.note_dead() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  new.dead_since := case when new.invalidated_at is not null or not new.active then coalesce(new.invalidated_at, now()) end;
  return new;
end
$$;

revoke all on function relevo.note_dead from public;
