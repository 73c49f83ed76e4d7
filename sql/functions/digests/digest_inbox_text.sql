-- Returns what a digest says in an inbox: how many there were, in English or Spanish; null if that is not known any more. What a phone was told
-- while it was another's does not count.
create or replace function relevo.digest_inbox_text(s relevo.inbox_subject, digest bigint, in_locale text, project_locale text) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('title', case when case when in_locale ~ '^(en|es)' then in_locale else project_locale end like 'es%' then case max(c.total) when 1 then '1 novedad para ti' else max(c.total) || ' novedades para ti' end
                                          else max(c.total) || ' new for you' end)
    from unnest(s.phones, s.since) as p(id, since)
    join relevo.digests g on g.event_id = digest and g.made_at > p.since
    join relevo.device_installations i on i.installation_id = p.id
    join relevo.digest_contents c on c.event_id = digest and c.seq = i.seq
  having count(*) > 0
$$;

revoke all on function relevo.digest_inbox_text from public;
