-- Returns the attributes that hold for a phone: its own before those of its owner; null if there are none.
create or replace function relevo.known_attributes(of_owner jsonb, of_phone jsonb) returns jsonb
  language sql immutable
return case when of_owner is null then of_phone when of_phone is null then of_owner else of_owner || of_phone end;

revoke all on function relevo.known_attributes from public;
