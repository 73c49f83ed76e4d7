-- Refuses the first event that is known and says something else, unless what is there is to be kept; returns for the others whether they say
-- the same. Events of items follow their source, and those of Relevo itself are never refused.
create or replace function relevo.refuse_conflicts(events jsonb, ids bigint[], sames boolean[]) returns boolean[]
  language plpgsql
as $$
declare
  event jsonb;
  differs text;
begin
  for n in 1 .. cardinality(ids) loop
    continue when sames[n] is distinct from false;
    event := events -> (n - 1);
    continue when event ->> 'on_conflict' = 'keep' or event ->> 'licitacion_id' is not null or starts_with(event ->> 'type', 'relevo.');
    differs := relevo.content_difference(event, ids[n]);
    if differs is not null then
      raise exception using errcode = '23R01',
        message = format('%sThe event of type %s and key %s already exists with other content%s', case when cardinality(ids) > 1 then format('events.%s: ', n - 1) end,
          to_jsonb(event ->> 'type'), to_jsonb(left(event ->> 'key', 100)), differs),
        hint = 'Use another key for another event; "on_conflict": "keep" keeps the existing event.';
    end if;
    sames[n] := true;
  end loop;
  return sames;
end
$$;

revoke all on function relevo.refuse_conflicts from public;
