-- Returns items of an inbox, newest first, from before a place on, up to so many; `wanted` is current, unread, unseen, read, archived or all.
-- It goes on until it has them, or has walked along so many deliveries: then the last row, without an event, says how far it came.
create or replace function relevo.walk_inbox(s relevo.inbox_subject, wanted text, of_category text, of_type text, before bigint, most int,
                                             most_walked int default null)
  returns table (place bigint, event_id bigint, at timestamptz, seen_at timestamptz, read_at timestamptz, archived_at timestamptz)
  language plpgsql stable
  set enable_seqscan = off -- while few marks are there they would be read whole for each item
as $$
#variable_conflict use_column
declare
  -- what came until then and was not touched is wanted no more
  after timestamptz := case wanted when 'unread' then s.read_before when 'unseen' then s.seen_before end;
  upto bigint := coalesce(before, 9223372036854775807);
  -- of what is unread so many that it is found at once where nearly half is read already: another look costs more than the rows
  wide int := least(greatest(case when wanted in ('unread', 'unseen') then most * 9 / 5 else most end + 10, 50), 500);
  walked int := 0;
  came int;
  g record;
begin
  loop
    g := case when wanted = 'archived' then relevo.gather_archived(s, upto, wide) else relevo.gather_inbox(s, upto, wide, after) end;
    return query select f.* from relevo.filter_inbox(
      s => s, wanted => wanted, of_category => of_category, of_type => of_type, places => g.places, events => g.events, days => g.days,
      ats => g.ats, reaches => g.reaches, most => most, came_by => g.came_by) f;
    get diagnostics came = row_count;
    most := most - came;
    walked := walked + g.walked;
    upto := g.reaches;
    exit when most <= 0 or upto = 0;
    if walked >= most_walked then
      return query select upto, null::bigint, null::timestamptz, null::timestamptz, null::timestamptz, null::timestamptz;
      exit;
    end if;
    -- so many as are likely to hold what is still wanted
    wide := case when came = 0 then least(wide * 2, 1000) else least(greatest((most + 10) * wide / came, 50), 1000) end;
  end loop;
end
$$;

revoke all on function relevo.walk_inbox from public;
