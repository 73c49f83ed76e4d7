-- Returns the first cap that an event would be above on a phone at a time, with how much of it is used, and in which words; null if none.
create or replace function relevo.explain_cap(e relevo.notification_events, i relevo.device_installations, at timestamptz) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('most', c.most, 'per', c.per, 'category', nullif(c.category, ''), 'used', u.used,
                            'reason', format('There is no room for it: %s, and %s are used.', relevo.cap_in_words(c), u.used))
    from relevo.applicable_caps(e, array[i.installation_id], null, at) w
    join relevo.caps c on c.id = w.cap
    cross join lateral (select count(*)::int as used, bool_or(n.event_id = (e).id) as is_in
                          from relevo.cap_uses r cross join lateral unnest(r.events) as n(event_id)
                         where r.cap = w.cap and r.subject = w.subject and r.bucket = w.bucket and relevo.counts_as(n.event_id, w.cap, w.subject) <> 'unsent') u
   where relevo.is_under_caps(e) and u.used >= c.most and u.is_in is not true
   order by c.id limit 1
$$;

revoke all on function relevo.explain_cap from public;
