-- Trigger: notes that a phone was an owner's until now: its items stay in that owner's inbox. Forgetting the owner deletes the note with the inbox.
create or replace function relevo.note_former_phone() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  insert into relevo.former_phones as f (inbox_id, installation_id, left_at)
  select b.id, old.installation_id, relevo.now() from relevo.inboxes b where b.id = old.inbox_id
  on conflict (inbox_id, installation_id) do update set left_at = excluded.left_at;
  return null;
end
$$;

revoke all on function relevo.note_former_phone from public;
