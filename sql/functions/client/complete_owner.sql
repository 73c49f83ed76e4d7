-- Ends unsent what is left for an owner's phones, of one event or of all made until now, because the owner handled it on one of them.
create or replace function relevo.complete_owner(of_owner text, of_event bigint default null, reason text default null) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  why text := left(nullif(btrim(reason), ''), 300);
begin
  perform relevo.check_owner(of_owner);
  if of_event is not null then
    insert into relevo.event_completions (event_id, owner, reason)
    select e.id, of_owner, why from relevo.notification_events e where e.id = of_event and e.ended_at is null for key share
    on conflict do nothing;
    return found;
  end if;
  perform from relevo.device_installations i where i.owner = of_owner order by i.installation_id for no key update;
  update relevo.device_installations set handled_before = now(), handled_reason = why, updated_at = now() where owner = of_owner;
  return found;
end
$$;

revoke all on function relevo.complete_owner from public;
