-- Returns an event as it would be written, as far as it says whom it reaches; refuses what writing it would refuse.
create or replace function relevo.draft_event(event jsonb, of_project text) returns relevo.notification_events
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  perform relevo.check_event(event);
  e.id := 0; -- nobody's
  e.project := of_project;
  e.audience := relevo.audience_kind(event);
  e.category := event ->> 'category';
  e.state := 'waiting';
  e.event_type := event ->> 'type';
  e.lane := coalesce(event ->> 'lane', (select t.lane from relevo.event_types t where t.event_type = event ->> 'type'), 'bulk');
  e.title := coalesce(event ->> 'title', event ->> 'arguments', '');
  e.body := coalesce(event ->> 'body', '');
  e.scheduled_at := coalesce(relevo.event_time(event, 'scheduled_at', null), now());
  e.deadline_at := relevo.check_deadline(
    coalesce(relevo.event_time(event, 'deadline_at', null), e.scheduled_at + interval '1 second' * coalesce((event ->> 'ttl_s')::numeric::int,
      (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type'))), e.scheduled_at, null);
  e.match_topics := array(select distinct jsonb_array_elements_text(coalesce(nullif(event -> 'topics', 'null'), '[]')));
  e.match_rubros := array(select jsonb_array_elements_text(coalesce(nullif(matching -> 'rubros', 'null'), '[]')));
  e.match_prefixes := relevo.prefixes(e.match_rubros);
  e.match_region := relevo.region_key(matching ->> 'region');
  e.match_tipo := matching ->> 'tipo';
  e.match_monto := (matching ->> 'monto')::numeric(20, 2);
  e.match_moneda := matching ->> 'moneda';
  e.match_words := relevo.words(matching ->> 'text');
  e.match_where := nullif(event -> 'where', 'null');
  return e;
end
$$;

revoke all on function relevo.draft_event from public;
