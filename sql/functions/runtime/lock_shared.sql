-- Locks a name until the transaction ends, together with others that share it, against relevo.lock_alone of the same name. The first one that
-- names it makes its row; until that transaction ends, others wait for it.
create or replace function relevo.lock_shared(of_name text) returns void
  language plpgsql volatile strict
as $$
declare
  of_key bigint := hashtextextended(of_name, 0);
begin
  loop
    perform from relevo.shared_locks l where l.key = of_key for key share;
    exit when found;
    insert into relevo.shared_locks (key) values (of_key) on conflict do nothing;
  end loop;
end
$$;

revoke all on function relevo.lock_shared from public;
