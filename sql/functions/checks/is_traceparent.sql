-- Returns whether a text is a traceparent of version 00, as W3C Trace Context defines it; null for null.
create or replace function relevo.is_traceparent(given text) returns boolean
  language sql immutable
as $$ select given ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' $$;

revoke all on function relevo.is_traceparent from public;
