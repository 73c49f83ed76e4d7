-- Ends what was gathered for phones: no digest tells it, and its deliveries say why.
create or replace function relevo.drop_items(seqs bigint[], events bigint[], code text, at timestamptz) returns void
  language plpgsql volatile
as $$
begin
  delete from relevo.digest_items x using unnest(seqs, events) as u(seq, event_id) where x.seq = u.seq and x.event_id = u.event_id;
  perform relevo.end_items(seqs, events, array_fill(code, array[cardinality(seqs)]), at);
end
$$;

revoke all on function relevo.drop_items from public;
