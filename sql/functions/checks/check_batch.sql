-- Refuses what is wrong with what an event says about batches: {"key": "post-7", "title": "{count} comments", "body": "{first}"}.
create or replace function relevo.check_batch(event jsonb) returns void
  language plpgsql stable
as $$
declare
  wrong text;
begin
  if event ->> 'batch' is null then
    return;
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(event -> 'batch') as k where k <> all (array['key', 'title', 'body']);
  if wrong is not null then
    perform relevo.refuse(format('batch has no field %s: it has a key, a title and a body', wrong));
  end if;
  if event ->> 'audience' <> all (array['installations', 'owners']) then
    perform relevo.refuse('batch is for events for given installations or owners: leave it out');
  end if;
  perform relevo.check_texts(event -> 'batch', '{"key": 64}', 1, 'batch.');
  perform relevo.check_texts(event -> 'batch', '{"title": 500, "body": 2000}', 0, 'batch.');
end
$$;

revoke all on function relevo.check_batch from public;
