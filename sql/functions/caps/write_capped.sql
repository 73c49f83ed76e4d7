-- Writes the deliveries of a slice that are above a cap: they are skipped, and in the inbox; also if the cap is
-- taken away at this moment. Where the cap says so they are told in the next digest. Returns how many of each.
create or replace function relevo.write_capped(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[], above int[],
                                                inboxes bigint[])
  returns jsonb
  language plpgsql volatile
as $$
declare
  n record;
begin
  select array_agg(case when c.over = 'digest' then 'in_digest' when u.cap is not null then 'capped' end order by u.place) as codes,
         array_agg('There is no room for it' || coalesce(': ' || relevo.cap_in_words(c), '') || case when c.over = 'digest' then '; it is told in the next digest.' else '.' end
                   order by u.place) as whys,
         array_agg(u.phone) filter (where c.over = 'digest') as digested
    into n
    from unnest(phones, above) with ordinality as u(phone, cap, place)
    left join relevo.caps c on c.id = u.cap;
  perform relevo.write_skipped(e, at, phones, providers, projects, n.codes, n.whys, inboxes);
  if n.digested is not null then
    perform relevo.add_to_digests(e, n.digested, at);
  end if;
  return jsonb_build_object('capped', cardinality(array_positions(n.codes, 'capped')), 'left_to_digests', coalesce(cardinality(n.digested), 0));
end
$$;

revoke all on function relevo.write_capped from public;
