-- Trigger: notes which installation lost its token to another.
create or replace function relevo.note_moved_token() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  insert into relevo.moved_tokens as m (token_key, installation_id) values (hashtextextended(relevo.token_name(old.provider, old.part, old.token), 0), old.installation_id)
  on conflict (token_key, installation_id) do update set moved_at = excluded.moved_at;
  return null;
end
$$;

revoke all on function relevo.note_moved_token from public;
