-- Writes the deliveries of a slice that are above a cap: they are skipped, and in the inbox; also if the cap is
-- taken away at this moment. Where the cap says so they are told in the next digest. Returns how many of each.
create or replace function relevo.write_capped(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], above int[],
                                                inboxes bigint[])
  returns jsonb
  language plpgsql volatile
as $$
declare
  digested uuid[]; -- phones of which a digest tells it
  of_inboxes bigint[];
  too_late uuid[];
  n record;
begin
  select array_agg(u.phone), array_agg(u.inbox_id) into digested, of_inboxes
    from unnest(phones, above, inboxes) as u(phone, cap, inbox_id) join relevo.caps c on c.id = u.cap where c.over = 'digest';
  if digested is not null then
    too_late := relevo.gather(e, digested, null, of_inboxes, at);
  end if;
  select array_agg(case when u.cap is null then null when u.phone = any (too_late) then 'deadline_before_digest' when u.phone = any (digested) then 'in_digest' else 'capped' end
                   order by u.place) as codes,
         array_agg(relevo.why_capped(u.cap)
                   || case when u.phone = any (digested) then ' ' || relevo.why_undigested(case when u.phone = any (too_late) then 'deadline_before_digest' end) else '' end
                   order by u.place) as whys
    into n
    from unnest(phones, above) with ordinality as u(phone, cap, place);
  perform relevo.write_skipped(e, at, phones, providers, projects, n.codes, n.whys, inboxes);
  return jsonb_build_object('capped', cardinality(array_positions(n.codes, 'capped')) + cardinality(array_positions(n.codes, 'deadline_before_digest')), 'left_to_digests', cardinality(array_positions(n.codes, 'in_digest')));
end
$$;

revoke all on function relevo.write_capped from public;
