-- Brings what was gathered for phones to the digests it belongs to now, after something changed about them, and ends what no preference wants any more. Rows are locked in one
-- order, so that there is no deadlock.
create or replace function relevo.place_items(phones uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  at timestamptz := relevo.now();
  n record;
  places relevo.digest_place[];
begin
  select array_agg(x.seq) as seqs, array_agg(x.event_id) as events into n
    from (select x.seq, x.event_id from relevo.digest_items x
           where x.seq in (select i.seq from relevo.device_installations i where i.installation_id = any (phones))
           order by x.seq, x.event_id for update) x;
  if n.seqs is null then
    return;
  end if;
  places := array(select p from relevo.digest_places(n.seqs, n.events) p);
  update relevo.digest_items x set slot_id = s.id
    from unnest(places) p join relevo.open_slots(places, at) s on s.project = p.project and s.delivery = p.delivery and s.zone = p.zone
   where x.seq = p.seq and x.event_id = p.event_id and x.slot_id <> s.id;
  perform relevo.drop_items(array_agg(p.seq), array_agg(p.event_id), 'preference_changed', at) from unnest(places) p where p.delivery is null having count(*) > 0;
end
$$;

revoke all on function relevo.place_items from public;
