-- Locks a name until the transaction ends, against everybody who locks it by relevo.lock_shared or by this.
create or replace function relevo.lock_alone(of_name text) returns void
  language plpgsql volatile strict
as $$
declare
  of_key bigint := hashtextextended(of_name, 0);
begin
  loop
    perform from relevo.shared_locks l where l.key = of_key for update;
    exit when found;
    insert into relevo.shared_locks (key) values (of_key) on conflict do nothing;
  end loop;
end
$$;

revoke all on function relevo.lock_alone from public;
