-- Lets transactions that name the same thing take turns: one waits here until the transaction of the other ends. Only roles that may write
-- relevo.turns can hold such a lock; PostgreSQL's advisory locks are open to every role that may connect. The row is deleted at once: an
-- insert of the same key waits for the transaction that inserted it before, also after it deleted it.
create or replace function relevo.take_turn(of_name text) returns void
  language plpgsql volatile strict
as $$
declare
  of_key bigint := hashtextextended(of_name, 0);
begin
  insert into relevo.turns (key) values (of_key);
  delete from relevo.turns where key = of_key;
end
$$;

revoke all on function relevo.take_turn from public;
