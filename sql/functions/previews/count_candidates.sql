-- Counts, up to a limit, the phones that an event may be for at some places. These are all phones, those with a preference in a bucket of the
-- event, or those of its project with one of some attributes.
create or replace function relevo.count_candidates(audience text, of_project text, buckets text[], after_seq bigint, upto_seq bigint, places int, wide bigint, most int)
  returns bigint
  language plpgsql stable
  set enable_seqscan = off -- lookups only
as $$
begin
  if audience = 'everyone' then
    return (select count(*) from (select from relevo.spread_places(after_seq, upto_seq, places, wide) p
                                    cross join lateral (select from relevo.device_installations i
                                                         where i.seq > p.after and i.seq <= p.upto offset 0) i limit most) c);
  end if;
  if audience = 'attributes' then
    return (select count(*) from (select from relevo.spread_places(after_seq, upto_seq, places, wide) p
                                    cross join lateral relevo.phones_with_words(buckets, of_project, p.after, p.upto, most) limit most) c);
  end if;
  return (select count(*) from (select from relevo.spread_places(after_seq, upto_seq, places, wide) p
                                  cross join lateral (select from relevo.preference_index x
                                                       where x.bucket = any (buckets) and x.seq > p.after and x.seq <= p.upto offset 0) x limit most) c);
end
$$;

revoke all on function relevo.count_candidates from public;
