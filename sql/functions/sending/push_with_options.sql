-- Returns the fields of an event's push with its options: replace a shown push, report taps, and show the unread count as the badge.
create or replace function relevo.push_with_options(push jsonb, event_type text, collapse text, opens boolean, unread_badge boolean) returns jsonb
  language plpgsql stable
as $$
begin
  return push || jsonb_strip_nulls(jsonb_build_object('collapse', event_type || ':' || collapse, 'opens', opens))
              || case when unread_badge then jsonb_build_object('badge', 'unread') else '{}' end;
end
$$;

revoke all on function relevo.push_with_options from public;
