-- Returns what a digest says in an inbox: how many there were, in English or Spanish; null if that is not known any more.
create or replace function relevo.digest_said(digest bigint, phones uuid[], in_locale text) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('title', case when in_locale like 'es%' then case max(c.total) when 1 then '1 novedad para ti' else max(c.total) || ' novedades para ti' end
                                          else max(c.total) || ' new for you' end)
    from relevo.device_installations i
    join relevo.digest_contents c on c.event_id = digest and c.seq = i.seq
   where i.installation_id = any (phones)
  having count(*) > 0
$$;

revoke all on function relevo.digest_said from public;
