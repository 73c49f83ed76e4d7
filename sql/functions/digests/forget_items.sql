-- Trigger: what was gathered for a phone that is deleted is told nobody; it stays in the inbox of its owner.
create or replace function relevo.forget_items() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  delete from relevo.digest_items x where x.seq = old.seq;
  return null;
end
$$;

revoke all on function relevo.forget_items from public;
