-- Refuses an event that is told by its type's texts, if something is missing for them.
create or replace function relevo.check_arguments(event jsonb) returns void
  language plpgsql stable
as $$
declare
  current relevo.wordings;
  wrong text;
begin
  if jsonb_typeof(event -> 'arguments') <> 'object' then
    perform relevo.refuse('arguments must be a JSON object');
  end if;
  if octet_length(event ->> 'arguments') > 4096 then
    perform relevo.refuse('arguments must fit into 4096 bytes');
  end if;
  if event ->> 'title' <> '' or event ->> 'body' <> '' then
    perform relevo.refuse('an event has arguments, for the texts of its type, or a title and body of its own, not both');
  end if;
  select w.* into current from relevo.wordings w where w.event_type = event ->> 'type' order by w.version desc limit 1;
  if not found then
    perform relevo.refuse(format('type %s has no texts that arguments could go into: save some with `relevo words set`, or give a title and body',
                                 relevo.shown(event -> 'type')));
  end if;
  wrong := relevo.arguments_complaint(current.arguments, event -> 'arguments');
  if wrong is not null then
    perform relevo.refuse(wrong);
  end if;
  if relevo.push_bytes('', '', coalesce(nullif(event -> 'data', 'null'), '{}'), coalesce(nullif(event -> 'push', 'null'), '{}')) + current.bytes
       + (case when event ->> 'collapse' is not null then 64 else 0 end) > 4096 then
    perform relevo.refuse('data and push, together with the texts of the type, must fit into 4096 bytes once rendered');
  end if;
end
$$;

revoke all on function relevo.check_arguments from public;
