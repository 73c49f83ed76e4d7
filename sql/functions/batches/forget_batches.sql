-- Deletes the batches of a forgotten person, of one project or of all, and blanks their events. It waits for transactions that are closing a batch,
-- so it also blanks an event that was made at this moment.
create or replace function relevo.forget_batches(of_subject text, of_project text, why text) returns void
  language plpgsql volatile
as $$
declare
  told bigint[];
begin
  with gone as (
    delete from relevo.batches b where b.subject = of_subject and (of_project is null or b.project = of_project) returning b.event_id
  )
  select array_agg(g.event_id) into told from gone g where g.event_id is not null;
  if told is not null then
    perform relevo.blank_events(told, why); -- a new statement: it sees them
    delete from relevo.event_owners o where o.event_id = any (told);
    delete from relevo.event_audience a where a.event_id = any (told);
  end if;
end
$$;

revoke all on function relevo.forget_batches from public;
