-- Returns the inbox of an owner in a project, made if it is not there yet; null without an owner. It is locked, so that cleanup does not delete it meanwhile.
create or replace function relevo.inbox_of_owner(of_owner text, of_project text) returns bigint
  language plpgsql volatile
as $$
declare
  found_id bigint;
begin
  if of_owner is null then
    return null;
  end if;
  select b.id into found_id from relevo.inboxes b where b.owner = of_owner and b.project = of_project for key share;
  if found_id is null then
    insert into relevo.inboxes (project, owner) values (of_project, of_owner) on conflict do nothing returning id into found_id;
  end if;
  return coalesce(found_id, (select b.id from relevo.inboxes b where b.owner = of_owner and b.project = of_project)); -- another made it meanwhile
end
$$;

revoke all on function relevo.inbox_of_owner from public;
