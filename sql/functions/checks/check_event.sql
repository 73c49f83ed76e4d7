-- Refuses an event, with the first thing that is wrong with it.
create or replace function relevo.check_event(event jsonb) returns void
  language plpgsql stable
as $$
declare
  wrong text;
begin
  if relevo.is_plain_event(event) then
    return;
  end if;
  if jsonb_typeof(event) is distinct from 'object' then
    perform relevo.refuse('an event must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(event) as k
   where k <> all (array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'owners', 'matching', 'topics', 'category',
                         'lane', 'at_most_once', 'scheduled_at', 'deadline_at', 'ttl_s', 'licitacion_id', 'on_conflict', 'arguments', 'collapse', 'batch', 'project', 'where', 'traceparent']);
  if wrong is not null then
    perform relevo.refuse(format('an event has no field %s', wrong));
  end if;
  for wrong in select k from unnest(array['type', 'key']) as k where coalesce(btrim(event ->> k), '') = '' loop
    perform relevo.refuse(format('%s must be given', wrong));
  end loop;
  perform relevo.check_texts(event, '{"type": 100, "key": 300, "category": 100, "collapse": 64, "project": 200}');
  perform relevo.check_texts(event, '{"title": 500, "body": 2000}', 0);
  for wrong in select k from unnest(array['data', 'push', 'matching', 'batch']) as k
                where event ? k and event -> k <> 'null' and jsonb_typeof(event -> k) <> 'object' loop
    perform relevo.refuse(format('%s must be a JSON object', wrong));
  end loop;
  perform relevo.check_batch(event);
  if event ->> 'arguments' is not null then
    perform relevo.check_arguments(event);
  elsif relevo.is_blank(event ->> 'title') and relevo.is_blank(event ->> 'body') and coalesce(nullif(event -> 'data', 'null'), '{}') = '{}' then
    perform relevo.refuse('an event must say something: give it a title, a body or data');
  end if;
  if relevo.is_too_deep(event -> 'data') then
    perform relevo.refuse('data is nested too deeply: at most 100 levels are taken');
  end if;
  if event ->> 'on_conflict' <> all (array['refuse', 'keep']) then
    perform relevo.refuse('on_conflict must be refuse or keep');
  end if;
  if not relevo.is_traceparent(event ->> 'traceparent') then
    perform relevo.refuse(format('traceparent must be as W3C Trace Context writes it, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, got %s',
                                 left(event ->> 'traceparent', 60)));
  end if;
  wrong := relevo.push_complaint(event -> 'push');
  if wrong is not null then
    perform relevo.refuse(wrong);
  end if;
  perform relevo.check_audience(event);
  if coalesce(event ->> 'lane', 'bulk') <> all (array['urgent', 'bulk']) then
    perform relevo.refuse('lane must be urgent or bulk');
  end if;
  perform relevo.check_boolean(event, 'at_most_once');
  perform relevo.check_number(event, 'ttl_s', 1, 2419200, whole => true);
  perform relevo.check_number(event, 'licitacion_id', 1, 9223372036854775807, whole => true);
  if (relevo.push_bytes(coalesce(event ->> 'title', ''), coalesce(event ->> 'body', ''), coalesce(nullif(event -> 'data', 'null'), '{}'),
                       coalesce(nullif(event -> 'push', 'null'), '{}')) + case when event ->> 'collapse' is not null then 64 else 0 end) > 4096 then
    perform relevo.refuse('title, body, data and push together must fit into 4096 bytes once rendered');
  end if;
end
$$;

revoke all on function relevo.check_event from public;
