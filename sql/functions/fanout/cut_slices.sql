-- Cuts the phones of a named audience that are still to come into slices, keeps all but the first, and returns the first.
create or replace function relevo.cut_slices(e relevo.notification_events, named uuid[], most int) returns bigint[]
  language plpgsql volatile
as $$
declare
  ahead bigint[] := array(select i.seq
                            from (select i.seq from relevo.device_installations i where i.installation_id = any (named) offset 0) i
                           where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto
                           order by i.seq);
begin
  insert into relevo.fanout_slices (event_id, last_seq, seqs)
  select e.id, s.seqs[cardinality(s.seqs)], s.seqs
    from (select ahead[n + 1 : n + most] as seqs from generate_series(most, cardinality(ahead) - 1, most) as n) s
  on conflict (event_id, last_seq) do update set seqs = excluded.seqs; -- kept before, of another size
  return ahead[:most];
end
$$;

revoke all on function relevo.cut_slices from public;
