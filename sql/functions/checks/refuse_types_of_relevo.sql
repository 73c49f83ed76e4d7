-- Refuses events whose type begins with relevo., which no app may enqueue.
create or replace function relevo.refuse_types_of_relevo(events jsonb) returns void
  language plpgsql stable
as $$
begin
  if jsonb_typeof(events) = 'array' and events @? '$[*].type ? (@ starts with "relevo.")' then
    perform relevo.refuse_event(case when jsonb_array_length(events) > 1 then min(e.place) end, 'type must not begin with relevo., which is for Relevo itself')
       from jsonb_array_elements(events) with ordinality as e(one, place)
      where jsonb_typeof(e.one -> 'type') = 'string' and starts_with(e.one ->> 'type', 'relevo.');
  end if;
end
$$;

revoke all on function relevo.refuse_types_of_relevo from public;
