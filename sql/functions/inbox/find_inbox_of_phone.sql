-- Returns the inbox of an installation without owner; what a phone with an owner gets is in the owner's.
create or replace function relevo.find_inbox_of_phone(s relevo.inbox_subject, of_installation uuid) returns relevo.inbox_subject
  language plpgsql stable
as $$
declare
  phone relevo.device_installations;
begin
  select i.* into phone from relevo.device_installations i where i.installation_id = of_installation and not i.for_news;
  if not found or s.project <> phone.project then
    perform relevo.refuse(format('there is no installation %s; register it first', of_installation));
  end if;
  if phone.owner is not null then
    perform relevo.refuse(format('installation %s has an owner: ask for the inbox of the owner', of_installation));
  end if;
  s.installation_id := of_installation;
  s.project := phone.project;
  s.phones := array[of_installation];
  s.since := array[coalesce(phone.owner_since, '-infinity') - interval '1 microsecond'];
  select b.id, b.seen_before, b.read_before into s.inbox_id, s.seen_before, s.read_before
    from relevo.inboxes b where b.installation_id = of_installation;
  return s;
end
$$;

revoke all on function relevo.find_inbox_of_phone from public;
