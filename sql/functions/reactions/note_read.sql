-- Counts that events were marked as read in an inbox, or as unread again (`more` is 1 or -1). It ends the unsent pushes of these events to the
-- owner's phones, if the event's type asks for that.
create or replace function relevo.note_read(of_events bigint[], of_owner text, of_project text, more int) returns void
  language plpgsql volatile
as $$
begin
  insert into relevo.event_reactions (event_id, kind, count)
  select e.id, 'read', more from relevo.notification_events e join relevo.event_types t on t.event_type = e.event_type and t.opens
   where e.id = any (of_events);
  if more > 0 then
    perform relevo.complete_reacted(of_events, of_owner, of_project, 'read');
  end if;
end
$$;

revoke all on function relevo.note_read from public;
