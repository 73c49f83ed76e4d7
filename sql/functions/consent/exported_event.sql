-- Returns an event as the export of one of its owners has it: what it said, and when.
create or replace function relevo.exported_event(e relevo.notification_events) returns jsonb language sql stable
as $$
  select jsonb_build_object('id', e.id, 'type', e.event_type, 'key', e.event_key, 'title', e.title, 'body', e.body, 'data', e.data, 'category', e.category, 'collapse', e.collapse, 'batch', e.batch, 'arguments', e.arguments, 'texts', e.texts,
                            'state', e.state, 'created_at', e.created_at)
$$;

revoke all on function relevo.exported_event from public;
