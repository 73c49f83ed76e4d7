-- Puts back into the queue what is not taken of a chunk; does nothing if nothing is left. A chunk of several events keeps its id, by which its events know it.
create or replace function relevo.put_back(rest relevo.due_chunks) returns void
  language plpgsql volatile
as $$
begin
  if cardinality(rest.ids) > 0 then
    if rest.events is null then
      rest.id := nextval('relevo.due_chunks_id_seq');
    end if;
    insert into relevo.due_chunks overriding system value select (rest).*;
  end if;
end
$$;

revoke all on function relevo.put_back from public;
