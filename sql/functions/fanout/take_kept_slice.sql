-- Takes the next kept slice of a named audience and returns its phones by sequence number; null if none is kept.
create or replace function relevo.take_kept_slice(e relevo.notification_events) returns bigint[]
  language plpgsql volatile
as $$
declare
  taken bigint[];
begin
  delete from relevo.fanout_slices s
   where s.event_id = e.id
     and s.last_seq = (select k.last_seq from relevo.fanout_slices k
                        where k.event_id = e.id and k.last_seq > e.fanout_cursor order by k.last_seq limit 1)
  returning s.seqs into taken;
  return taken;
end
$$;

revoke all on function relevo.take_kept_slice from public;
