-- Sends an owner nothing from now on, or with false lets pushes go again; what is kept of them stays. Without a project, in all of them. Returns
-- how many phones the owner has there; phones that are registered later are blocked, too.
create or replace function relevo.block_owner(asked jsonb, is_blocked boolean default true) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  of_project text := coalesce(asked ->> 'project', '');
begin
  perform relevo.check_owner_question(asked, array['reason']);
  perform relevo.lock_owner(asked ->> 'owner');
  if is_blocked then
    insert into relevo.owner_rules as r (owner, project, blocked_at, block_reason)
    values (asked ->> 'owner', of_project, now(), coalesce(asked ->> 'reason', ''))
    on conflict (owner, project) do update set blocked_at = coalesce(r.blocked_at, now()), block_reason = excluded.block_reason;
  else
    update relevo.owner_rules set blocked_at = null, block_reason = null
     where owner = asked ->> 'owner' and (of_project = '' or project = of_project) and blocked_at is not null;
    delete from relevo.owner_rules where owner = asked ->> 'owner' and blocked_at is null and choices = '{}' and quiet is null and attributes is null;
  end if;
  return relevo.apply_to_phones(asked ->> 'owner', of_project);
end
$$;

revoke all on function relevo.block_owner from public;
