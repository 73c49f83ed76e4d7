-- Returns a delivery as the export of its phone's owner has it: what was sent, and what became of it.
create or replace function relevo.exported_delivery(d relevo.notification_deliveries) returns jsonb language sql stable
as $$
  select jsonb_build_object('id', d.id, 'installation_id', d.installation_id, 'event_id', d.notification_event_id, 'type', d.event_type,
                            'title', e.title, 'body', e.body, 'data', e.data, 'provider', d.provider, 'status', d.status, 'attempts', d.attempt_count,
                            'created_at', d.created_at, 'completed_at', d.completed_at, 'opened_at', d.opened_at, 'opened_action', d.opened_action)
    from (select) one
    left join relevo.notification_events e on e.id = d.notification_event_id
$$;

revoke all on function relevo.exported_delivery from public;
