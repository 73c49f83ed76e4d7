-- Returns of the phones of a slice those that have the attributes by which an event narrows its audience; all of them if it does not.
create or replace function relevo.leave_out_others(e relevo.notification_events, inout phones uuid[], inout providers text[], inout projects text[], inout hours int[], inout inboxes bigint[])
  language plpgsql volatile
as $$
begin
  if e.match_where is null or e.audience = 'attributes' or phones is null then
    return; -- attribute_targets asked each phone
  end if;
  select array_agg(u.phone), array_agg(u.provider), array_agg(u.project), case when hours is not null then array_agg(u.own) end,
         case when inboxes is not null then array_agg(u.inbox_id) end
    into phones, providers, projects, hours, inboxes
    from unnest(phones, providers, projects, hours, inboxes) as u(phone, provider, project, own, inbox_id)
    cross join lateral (select i.owner_attributes, i.attributes from relevo.device_installations i where i.installation_id = u.phone offset 0) i
   where relevo.fits_attributes(i.owner_attributes, i.attributes, e.match_where);
end
$$;

revoke all on function relevo.leave_out_others from public;
