-- Returns the time of a push that waited for the end of quiet hours: within some minutes after it, at one of thirty steps by phone, so that many
-- are sent in one request. A deadline is kept.
create or replace function relevo.spread_quiet(due_at timestamptz, phone uuid, spread_s int, deadline_at timestamptz) returns timestamptz
  language sql immutable
  return due_at + least(coalesce(spread_s, 300) * interval '1 second', (deadline_at - due_at) / 2) * ((hashtextextended(phone::text, 7) & 1073741823) % 30) / 30;

revoke all on function relevo.spread_quiet from public;
