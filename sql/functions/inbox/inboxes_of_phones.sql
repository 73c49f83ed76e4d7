-- Returns the inboxes whose items go when some phones are forgotten: those of the phones' owners, and of a phone that is deleted already those of all who had it. An item
-- that a phone received for a former owner belongs to that owner, and stays.
create or replace function relevo.inboxes_of_phones(phones uuid[]) returns bigint[]
  language sql stable
as $$
  select array(select i.inbox_id from relevo.device_installations i where i.installation_id = any (phones) and i.inbox_id is not null
               union
               select f.inbox_id from relevo.former_phones f
                where f.installation_id = any (phones) and not exists (select from relevo.device_installations i where i.installation_id = f.installation_id))
$$;

revoke all on function relevo.inboxes_of_phones from public;
