-- delete_deliveries as 0.3.0 calls it.
create or replace function relevo.delete_some_1(id_of_event bigint, of_day date, from_phone uuid, most int, out deleted int, out last_phone
    uuid, out finished boolean)
  language sql volatile
as $$ select * from relevo.delete_deliveries($1, $2, $3, $4) $$;

revoke all on function relevo.delete_some_1 from public;
