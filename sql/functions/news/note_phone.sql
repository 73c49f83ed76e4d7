-- Trigger: writes a news item about a phone, of the kind that the trigger names.
create or replace function relevo.note_phone() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  kind text := tg_argv[0];
begin
  if relevo.is_news(kind) and not old.for_news then
    insert into relevo.news_inbox (at, kind, project, installation_id, data)
    values (now(), kind, old.project, old.installation_id,
            jsonb_build_object('reason', case when tg_op = 'DELETE' then 'forgotten' when kind = 'token.disabled' then new.invalid_reason
                                              else 'unregistered' end));
  end if;
  return null;
end
$$;

revoke all on function relevo.note_phone from public;
