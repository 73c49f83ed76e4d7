-- Trigger: notes when an installation took over a token that another had lately. A new installation needs no note: it gets nothing that was
-- fanned out before.
create or replace function relevo.note_taken_token() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if exists (select from relevo.moved_tokens m where m.token_key = hashtextextended(relevo.token_name(new.provider, new.part, new.token), 0)) then
    new.token_taken_at := now();
  end if;
  return new;
end
$$;

revoke all on function relevo.note_taken_token from public;
