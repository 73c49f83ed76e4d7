-- Refuses the first new event that shows nothing and is for browsers alone, as far as its phones are known: Web Push takes no silent push.
create or replace function relevo.refuse_unshown(events jsonb, news boolean[]) returns void
  language plpgsql stable
  set enable_seqscan = off -- lookups only
as $$
declare
  wrong bigint;
begin
  select min(e.place) into wrong
    from jsonb_array_elements(events) with ordinality as e(one, place)
   where (ascii(e.one ->> 'title') between 33 and 126) is not true -- most begin with a letter
     and news[e.place] and e.one ->> 'arguments' is null
     and relevo.is_blank(e.one ->> 'title') and relevo.is_blank(e.one ->> 'body')
     and e.one ->> 'audience' in ('installations', 'owners')
     and (select bool_and(d.provider = 'webpush')
            from (select d.provider from relevo.device_installations d
                   where d.installation_id = any (array(select i::uuid from jsonb_array_elements_text(nullif(e.one -> 'installations', 'null')) as i))
                     and d.active and d.project = coalesce(e.one ->> 'project', d.project)
                  union all
                  select d.provider from relevo.device_installations d
                   where d.owner = any (array(select jsonb_array_elements_text(nullif(e.one -> 'owners', 'null'))))
                     and d.active and d.project = coalesce(e.one ->> 'project', relevo.project_of_owners(), d.project)) d);
  if wrong is not null then
    perform relevo.refuse_event(case when jsonb_array_length(events) > 1 then wrong end,
      'title must be given, or body: all phones of this event get it by Web Push, and browsers must be shown something');
  end if;
end
$$;

revoke all on function relevo.refuse_unshown from public;
