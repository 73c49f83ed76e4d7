-- Returns whether a delivery to a phone of an inbox is an item of that inbox: it was made for it, or before deliveries had one and while the phone was the
-- owner's (`since`), or to a phone without owner. It is inlined.
create or replace function relevo.is_item_of(inbox_id bigint, made_for bigint, created_at timestamptz, since timestamptz) returns boolean
  language sql immutable parallel safe
  return coalesce(made_for = inbox_id, false) or made_for is null and created_at > since;

revoke all on function relevo.is_item_of from public;
