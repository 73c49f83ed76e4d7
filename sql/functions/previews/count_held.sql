-- Counts of some phones how many would wait for the end of quiet hours, and how many have no room for an event under their caps.
create or replace function relevo.count_held(e relevo.notification_events, phones uuid[], at timestamptz) returns jsonb
  language plpgsql stable
as $$
declare
  dues timestamptz[] := case when exists (select from relevo.quiet_profiles) then relevo.quiet_dues(e, phones, at) end;
  capped bigint[] := '{}';
begin
  if exists (select from relevo.caps) and relevo.is_under_caps(e) then
    capped := array(select distinct n.place from relevo.asked_caps(e, phones, dues, at) w
                      join relevo.cap_uses u on u.cap = w.cap and u.subject = w.subject and u.bucket = w.bucket
                      cross join unnest(w.places) as n(place)
                     where cardinality(u.events) >= w.most);
  end if;
  return jsonb_build_object('capped', cardinality(capped), 'waiting', (select count(*) from unnest(dues) with ordinality as d(due_at, place)
                                                                          where d.due_at > at and d.place <> all (capped)));
end
$$;

revoke all on function relevo.count_held from public;
