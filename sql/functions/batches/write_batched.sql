-- Puts an event into batches, writes the deliveries of the phones that are told by them, and returns the phones of the slice that get it at once.
create or replace function relevo.write_batched(e relevo.notification_events, at timestamptz, inout phones uuid[], inout providers text[], inout projects text[],
                                                inout hours int[], inout inboxes bigint[])
  language plpgsql volatile
as $$
declare
  batched boolean[] := relevo.join_batches(e, phones, at);
begin
  if true = any (batched) then
    perform relevo.write_skipped(e, at, phones, providers, projects,
                                 array(select case when u.is_batched then 'batched' end from unnest(batched) with ordinality as u(is_batched, place) order by u.place),
                                 array_fill('One push announces it together with others of its kind.'::text, array[cardinality(phones)]), inboxes);
  end if;
  select array_agg(u.phone), array_agg(u.provider), array_agg(u.project), case when hours is not null then array_agg(u.own) end,
         case when inboxes is not null then array_agg(u.inbox_id) end
    into phones, providers, projects, hours, inboxes
    from unnest(phones, providers, projects, hours, batched, inboxes) as u(phone, provider, project, own, is_batched, inbox_id) where not u.is_batched;
end
$$;

revoke all on function relevo.write_batched from public;
