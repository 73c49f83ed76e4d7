-- Returns up to which sequence number the next slice of a matching event reaches: as far as there are so many candidates, found by windows that
-- grow while they hold few. Each window is one index lookup per bucket, so that an event with many words does not read all that is left of
-- each.
create or replace function relevo.matching_window(buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language plpgsql stable
as $$
declare
  wide bigint := most;
  last bigint := after_seq;
  met bigint := 0;
  here bigint;
begin
  while last < upto_seq and met < most loop
    select count(*) into here
      from (select from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > last and x.seq <= last + wide
             limit 4 * most) c;
    if here = 4 * most and wide > 1 then
      wide := greatest(wide / 4, 1);
      continue;
    end if;
    met := met + here;
    last := last + wide;
    wide := case when here * 8 <= most then wide * 8 else wide end;
  end loop;
  return least(last, upto_seq);
end
$$;

revoke all on function relevo.matching_window from public;
