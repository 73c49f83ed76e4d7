-- Returns the content of an event as it is compared, field by field; lists that are sets in one order.
create or replace function relevo.event_said(e relevo.notification_events) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('audience', case when o.names <> '[]' then 'owners' else e.audience end, 'title', case when e.arguments is null then e.title else '' end,
           'body', case when e.arguments is null then e.body else '' end, 'arguments', jsonb_strip_nulls(coalesce(e.arguments, '{}')),
           'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
           'data', jsonb_strip_nulls(e.data), 'push', jsonb_strip_nulls(e.push || jsonb_build_object('badge', coalesce(e.push -> 'badge', case when e.unread_badge then '"unread"'::jsonb end))),
           'collapse', e.collapse, 'batch', jsonb_strip_nulls(coalesce(e.batch, '{}')),
           'matching', jsonb_strip_nulls(jsonb_build_object('rubros', relevo.sort_list(jsonb_build_object('r', e.match_rubros), 'r') -> 'r', 'region', e.match_region,
                       'tipo', e.match_tipo, 'monto', e.match_monto, 'moneda', e.match_moneda, 'text', e.match_words)),
           'where', relevo.sort_lists(relevo.trim_numbers(coalesce(e.match_where, '{}'))), 'topics', relevo.sort_list(jsonb_build_object('t', e.match_topics), 't') -> 't', 'owners', o.names,
           'installations', (select coalesce(jsonb_agg(a.installation_id order by a.installation_id), '[]') from relevo.event_audience a where a.event_id = e.id))
    from (select coalesce(jsonb_agg(n.owner order by n.owner collate "C"), '[]') as names from relevo.event_owners n where n.event_id = e.id) o
$$;

revoke all on function relevo.event_said from public;
