-- Returns the push of an event as its size is measured: with everything that a delivery adds to its data.
create or replace function relevo.push_bytes(title text, body text, data jsonb, push jsonb) returns int language sql immutable
  return octet_length((push || jsonb_build_object('to', repeat('x', 64), 'title', title, 'body', body, 'ttl', 2419200, 'priority', 'high',
    'sound', 'default', 'tag', repeat('x', 40), 'collapseId', repeat('x', 40), 'data', data || jsonb_build_object(
      'notificationEventId', 9223372036854775807, 'notificationDeliveryId', 9223372036854775807,
      'installationId', '00000000-0000-0000-0000-000000000000', 'pushProvider', 'expo')))::text);

revoke all on function relevo.push_bytes from public;
