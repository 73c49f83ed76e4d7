-- Returns the functions that an app may call, those that grant_app grants.
create or replace function relevo.app_functions() returns text[] language sql immutable
return array['enqueue(jsonb)', 'enqueue_many(jsonb)', 'event_id(text, text)', 'event_id_in_project(text, text, text)', 'get_event(bigint)', 'cancel(bigint, text)',
  'complete(bigint, text)', 'complete_installation(uuid, text)', 'complete_owner(text, bigint, text)', 'delete_events(bigint[])',
  'change(jsonb)', 'preview(jsonb, int)', 'explain(jsonb, uuid)', 'explain_event(bigint, uuid)',
  'register_installation(jsonb)', 'register_many(jsonb)', 'list_installations(text, int)', 'unregister_installation(uuid)',
  'unregister_owner(text)', 'forget_installation(uuid)', 'forget_owner(text)', 'set_preference(uuid, text, jsonb)', 'subscribe_news(jsonb)',
  'read_news(text, bigint, int)', 'acknowledge_news(text, bigint)', 'inbox(jsonb)', 'inbox_counts(jsonb)', 'mark_inbox(jsonb, bigint, text)',
  'mark_inbox_before(jsonb, timestamptz, text)', 'set_category(jsonb)', 'list_categories(jsonb)', 'choose(jsonb)', 'block_owner(jsonb, boolean)',
  'export_owner(jsonb)', 'set_quiet(jsonb)', 'get_quiet(jsonb)', 'set_cap(jsonb)', 'list_caps(text)', 'set_event_type(jsonb)', 'reset_event_type(text)',
  'list_event_types()', 'set_attributes(jsonb)', 'get_attributes(jsonb)', 'report_opened(uuid, bigint, timestamptz, text)'];

revoke all on function relevo.app_functions from public;
