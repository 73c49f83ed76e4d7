-- Returns the hash that replaces the key of an event once nobody may read it; it can still be looked up.
create or replace function relevo.hidden_key(event_type text, event_key text) returns text
  language sql stable -- as convert_to is: only so it is called in its caller's place
  return case when starts_with(event_key, 'sha256:') and event_key ~ '^sha256:[0-9a-f]{64}$' then event_key
              else 'sha256:' || encode(sha256(convert_to(event_type || chr(10) || event_key, 'UTF8')), 'hex') end;

revoke all on function relevo.hidden_key from public;
