-- needs relevo 0.3.0
-- Lets each transaction see whether fan-out and dispatch are awake, whatever snapshot it has.

create sequence relevo.fanout_awake minvalue 0 maxvalue 1 start 0;
create sequence relevo.dispatch_awake minvalue 0 maxvalue 1 start 0;
create function relevo.note_asleep() returns trigger language plpgsql as 'begin return null; end';
create trigger note_asleep after insert or update of asleep on relevo.cycle_state
  for each row when (new.asleep and new.source = '')
  execute function relevo.note_asleep();
