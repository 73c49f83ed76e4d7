-- Returns a page of an inbox, newest first: what an owner, or an installation without owner, was sent or would have been sent. It is asked for as
-- {"owner": "user-7", "project": …, "status": "unread", "category": …, "type": …, "before": "123", "limit": 50, "locale": "es"}; `next` goes on from there.
-- With "digest": "123" it is what that digest told, the best first.
-- An item with the texts of its type is in the locale that is asked for, or else in that of the newest phone that said one; in the project's if the
-- type has no text in that.
create or replace function relevo.inbox(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
  s relevo.inbox_subject := relevo.find_inbox(asked, array['status', 'category', 'type', 'before', 'limit', 'locale', 'digest']);
  spoken text;
  otherwise text := relevo.project_locale(s.project);
  wanted text := coalesce(asked ->> 'status', 'current');
  most int;
  page record;
begin
  perform relevo.check_texts(asked, '{"status": 20, "category": 100, "type": 100, "before": 19, "locale": 35, "digest": 19}');
  perform relevo.check_number(asked, 'limit', 1, 200, true);
  if wanted <> all (array['current', 'unread', 'unseen', 'read', 'archived', 'all']) then
    perform relevo.refuse('status must be current, unread, unseen, read, archived or all');
  end if;
  if asked ->> 'before' !~ '^[0-9]{1,19}$' or (asked ->> 'before')::numeric > 9223372036854775807 then
    perform relevo.refuse('before must be the `next` of another page');
  end if;
  if asked ->> 'digest' !~ '^[0-9]{1,18}$' then
    perform relevo.refuse('digest must be the notificationEventId of a push of type relevo.digest, as text');
  end if;
  most := coalesce((asked ->> 'limit')::numeric::int, 50);
  spoken := coalesce(asked ->> 'locale', (select d.locale from unnest(s.phones) with ordinality as u(phone, place)
                                            join relevo.device_installations d on d.installation_id = u.phone and d.owner is not distinct from s.owner
                                           where d.locale is not null order by u.place limit 1));
  if asked ->> 'digest' is not null then
    return relevo.digest_page(s, (asked ->> 'digest')::bigint, spoken, otherwise, least(coalesce((asked ->> 'before')::bigint, 0), 2147483647)::int, most);
  end if;
  select jsonb_agg(i.item order by i.place desc) filter (where i.item is not null) as items, min(i.place) as last, max(i.place) filter (where i.item is not null) as newest,
         count(i.item) = most or count(*) > count(i.item) as is_more
    into page
    from (select w.place, case when w.event_id is not null then jsonb_build_object(
                   'event_id', w.event_id, 'type', c.event_type, 'category', c.category, 'title', case when c.said is null then c.title else coalesce(c.said ->> 'title', '') end, 'body', case when c.said is null then c.body else coalesce(c.said ->> 'body', '') end, 'data', c.data, 'at', w.at,
                   'seen_at', w.seen_at, 'read_at', w.read_at, 'archived_at', w.archived_at, 'cursor', w.place::text) end as item
            from relevo.walk_inbox(s, wanted, asked ->> 'category', asked ->> 'type', (asked ->> 'before')::bigint, most, 10000) w
            left join lateral (
              select o.event_type, o.category, o.title, o.body, o.data, case when o.texts is not null then relevo.text_in(o.texts, spoken, otherwise) end as said
                from (select e.event_type, e.category, e.title, e.body, e.data, e.texts from relevo.notification_events e where e.id = w.event_id
                      union all
                      select k.event_type, k.category, k.title, k.body, k.data, k.texts from relevo.kept_inbox_items k
                       where k.inbox_id = s.inbox_id and k.event_id = w.event_id
                      limit 1) o) c on true
          offset 0) i; -- else each item would be made anew for each of what is asked of it
  return jsonb_build_object('items', coalesce(page.items, '[]'), 'next', case when page.is_more then page.last::text end, 'newest', page.newest::text);
end
$$;

revoke all on function relevo.inbox from public;
