-- Brings what caps left for the next digests of phones to the slots that they follow now.
create or replace function relevo.move_extras(phones uuid[]) returns void
  language plpgsql volatile
as $$
declare
  n record;
begin
  for n in
    with gone as (
      delete from relevo.digest_extras x where x.installation_id = any (phones) returning x.event_id, x.installation_id
    )
    select (select e from relevo.notification_events e where e.id = g.event_id) as e, array_agg(g.installation_id) as ids from gone g group by g.event_id order by g.event_id
  loop
    if (n.e).id is not null then
      perform relevo.add_to_digests(n.e, n.ids, now());
    end if;
  end loop;
end
$$;

revoke all on function relevo.move_extras from public;
