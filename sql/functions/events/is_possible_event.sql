-- Returns whether an event can be in a state: what has begun, is finished or has ended has its times, and nothing else has.
create or replace function relevo.is_possible_event(state text, event_day date, fanout_started_at timestamptz, fanout_upto bigint, fanout_finished_at timestamptz, ended_at timestamptz)
  returns boolean
  language plpgsql immutable
as $$
begin
  if state = 'waiting' and event_day is null then -- as each event is inserted
    return fanout_started_at is null and fanout_upto is null and ended_at is null;
  end if;
  return (event_day is null) = (fanout_started_at is null)
     and (event_day is null) = (fanout_upto is null)
     and case state
           when 'waiting' then ended_at is null
           when 'held' then ended_at is null
           when 'fanning' then ended_at is null and event_day is not null
           when 'fanned' then ended_at is null and event_day is not null and fanout_finished_at is not null
           when 'cancelled' then ended_at is not null
           when 'completed' then ended_at is not null
           else false
         end;
end
$$;

revoke all on function relevo.is_possible_event from public;
