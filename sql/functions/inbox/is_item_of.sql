-- Returns whether a delivery to a phone of an inbox is an item of that inbox. It is if it was made for the inbox, if it is older than inboxes and
-- the phone was the owner's then (`since`), or if the phone has no owner. It is inlined.
create or replace function relevo.is_item_of(inbox_id bigint, made_for bigint, created_at timestamptz, since timestamptz) returns boolean
  language sql immutable parallel safe
  return coalesce(made_for = inbox_id, false) or made_for is null and created_at > since;

revoke all on function relevo.is_item_of from public;
