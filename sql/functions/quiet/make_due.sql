-- Makes chunks that wait for the end of quiet hours due now: the worker that claims them reads the hours as they are then. A chunk that somebody else has
-- locked stays as it is. Returns how many chunks it moved.
create or replace function relevo.make_due(chunks bigint[]) returns int
  language plpgsql volatile
as $$
declare
  moved int;
begin
  with waiting as materialized (
    select q.id from relevo.due_chunks q where q.id = any (chunks) and q.events is null and relevo.waits_for_quiet(q) order by q.id for update skip locked
  ), taken as (
    delete from relevo.due_chunks q using waiting w where q.id = w.id returning q.*
  )
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations, inboxes)
  select t.project, t.lane, now(), t.event_day, t.event_id, t.event_type, t.created_at, t.attempt_count, t.lapse_count, t.had_error, t.ids, t.installations, t.inboxes
    from taken t;
  get diagnostics moved = row_count;
  if moved > 0 then
    perform relevo.wake('dispatch');
  end if;
  return moved;
end
$$;

revoke all on function relevo.make_due from public;
