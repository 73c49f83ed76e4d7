-- needs relevo 0.3.0
-- Gives the states of events one CHECK, a function, in place of five, and drops the CHECKs of what only Relevo's own functions write: PostgreSQL
-- parses the text of each again for every statement that writes an event.

create function relevo.is_possible_event(state text, event_day date, fanout_started_at timestamptz, fanout_upto bigint, fanout_finished_at timestamptz, ended_at timestamptz)
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

alter table relevo.notification_events
  drop constraint notification_events_state_check,
  drop constraint notification_events_check,
  drop constraint notification_events_check1,
  drop constraint notification_events_check2,
  drop constraint notification_events_check3,
  drop constraint notification_events_check4,
  drop constraint notification_events_check5,
  drop constraint notification_events_end_reason_check,
  drop constraint notification_events_texts_check,
  drop constraint fanout_error_is_short,
  drop constraint values_fit_an_archive,
  add constraint event_is_possible check (relevo.is_possible_event(state, event_day, fanout_started_at, fanout_upto, fanout_finished_at, ended_at)) not valid;
