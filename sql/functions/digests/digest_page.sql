-- Returns what a digest told the phones of an inbox, as a page of items with their marks, the best first; `before` goes on from the cursor of an item. Events that ended since are left out, what its type keeps
-- out of inboxes, and what a phone was told while it was another's.
create or replace function relevo.digest_page(s relevo.inbox_subject, digest bigint, in_locale text, project_locale text, after_place int, most int) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('items', coalesce(jsonb_agg(p.item order by p.place) filter (where p.item is not null), '[]'),
                            'next', case when count(*) = most then max(p.place)::text end, 'newest', null)
    from (select u.place, case when e.id is not null then jsonb_build_object(
                   'event_id', e.id, 'type', e.event_type, 'category', e.category, 'title', coalesce(t.said ->> 'title', e.title),
                   'body', coalesce(t.said ->> 'body', e.body), 'data', e.data, 'at', e.at,
                   'seen_at', case when m.event_id is not null then m.seen_at when e.at <= s.seen_before then s.seen_before end,
                   'read_at', case when m.event_id is not null then m.read_at when e.at <= s.read_before then s.read_before end,
                   'archived_at', m.archived_at, 'cursor', u.place::text) end as item
            from (select c.offsets, i.installation_id
                    from unnest(s.phones, s.since) as p(id, since)
                    join relevo.digests g on g.event_id = digest
                    join relevo.device_installations i on i.installation_id = p.id
                    join relevo.digest_contents c on c.event_id = digest and c.seq = i.seq and relevo.is_item_of(s.inbox_id, c.inbox_id, g.made_at, p.since)
                   order by c.total desc, c.seq limit 1) c -- phones of one owner may be told different numbers
            cross join unnest(c.offsets) with ordinality as u(before, place)
            left join lateral (select e.*, coalesce(d.created_at, e.fanout_finished_at) as at
                                 from relevo.notification_events e
                                 left join relevo.notification_deliveries d on d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = c.installation_id
                                where e.id = digest - u.before and e.ended_at is null
                                  and not exists (select from relevo.event_types t where t.event_type = e.event_type and not t.inbox) offset 0) e on true
            left join lateral (select relevo.text_in(e.texts, in_locale, project_locale) as said) t on true
            left join relevo.inbox_marks m on m.inbox_id = s.inbox_id and m.event_id = e.id
           where u.place > after_place order by u.place limit most) p
$$;

revoke all on function relevo.digest_page from public;
