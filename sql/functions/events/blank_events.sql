-- Removes the content of events, and ends those that are not through; a hash of their keys stays, for dedup. One that was completed stays so, and shows
-- nothing: no inbox has an item without a title.
create or replace function relevo.blank_events(ids bigint[], why text) returns void language plpgsql volatile
as $$
begin
  perform relevo.end_event(e, 'cancelled', why) from unnest(ids) as e;
  update relevo.notification_events
     set event_key = relevo.hidden_key(event_type, event_key), title = case when state = 'completed' then '' else 'forgotten' end, body = '', data = '{}', push = '{}', content_hash = '', arguments = null, texts = null, wording = null,
         match_topics = '{}', match_rubros = '{}', match_region = null, match_tipo = null, match_monto = null, match_moneda = null,
         match_words = null, match_where = null, collapse = null, batch = null, traceparent = null, end_reason = case when end_reason is not null then why end
   where id = any (ids);
end
$$;

revoke all on function relevo.blank_events from public;
