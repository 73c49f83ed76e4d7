-- Returns the caps that apply to an event and some phones: for which owner each counts, in which hour, day or week of the owner the event would be
-- sent, and for which of the phones. An owner counts once, however many phones the owner has: a later slice finds where an earlier one counted the
-- event.
create or replace function relevo.applicable_caps(e relevo.notification_events, phones uuid[], dues timestamptz[], at timestamptz)
  returns table (cap int, most int, subject text, bucket timestamp, places bigint[])
  language sql stable
as $$
  select a.cap, a.most, a.subject,
         coalesce(case when (e).fanout_cursor > 0 then (select u.bucket from relevo.cap_uses u where u.cap = a.cap and u.subject = a.subject and (e).id = any (u.events) limit 1) end,
                  a.bucket), a.places
    from (select c.id as cap, c.most, p.subject, min(date_trunc(c.per, p.due_at at time zone p.zone)) as bucket, array_agg(p.place) as places
            from (select u.place, coalesce('o:' || i.owner, 'i:' || i.installation_id) as subject, i.project, coalesce(dues[u.place], at) as due_at,
                         relevo.cap_zone(i.owner, i.project, i.timezone, i.quiet, i.owner_quiet) as zone
                    from unnest(phones) with ordinality as u(id, place)
                    cross join lateral (select i.installation_id, i.owner, i.project, i.timezone, i.quiet, i.owner_quiet from relevo.device_installations i
                                         where i.installation_id = u.id offset 0) i) p
            join relevo.caps c on c.project = p.project and c.category in ('', coalesce((e).category, ''))
           group by c.id, c.most, p.subject) a
$$;

revoke all on function relevo.applicable_caps from public;
