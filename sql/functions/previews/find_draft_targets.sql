-- Finds the phones in a range that a drafted event reaches, and whether by a digest alone.
create or replace function relevo.find_draft_targets(e relevo.notification_events, named uuid[], owners text[], buckets text[], after_seq bigint, upto_seq bigint)
  returns table (installation_id uuid, project text, in_digest boolean)
  language sql stable
as $$
  select i.installation_id, i.project, c.in_digest
    from (select x.seq, bool_and(x.delivery is not null) as in_digest
            from relevo.preference_index x
           where (e).audience = 'matching' and x.bucket = any (find_draft_targets.buckets) and x.seq > after_seq and x.seq <= upto_seq
             and (x.sure or exists (select from relevo.notification_preferences p
                                     where p.installation_id = x.installation_id and p.name = x.name and relevo.preference_matches(p, e)))
           group by x.seq) c
    cross join lateral (select i.* from relevo.device_installations i where i.seq = c.seq offset 0) i
   where relevo.may_receive(i) and relevo.fits_attributes(i.owner_attributes, i.attributes, (e).match_where) and relevo.unwanted(i.opt_outs, i.refused, i.accepted, (e).category, (select relevo.category_rule((e).category))) is null
  union all
  select i.installation_id, i.project, false
    from relevo.device_installations i
   where (e).audience = 'everyone' and i.seq > after_seq and i.seq <= upto_seq and not i.for_news
     and relevo.may_receive(i) and relevo.unwanted(i.opt_outs, i.refused, i.accepted, (e).category, (select relevo.category_rule((e).category))) is null
  union all
  select i.installation_id, i.project, false
    from relevo.phones_with_words(find_draft_targets.buckets, (e).project, after_seq, upto_seq, null) as c(seq)
    cross join lateral (select i.* from relevo.device_installations i where i.seq = c.seq offset 0) i
   where (e).audience = 'attributes' and not i.for_news and relevo.fits_attributes(i.owner_attributes, i.attributes, (e).match_where)
     and relevo.may_receive(i) and relevo.unwanted(i.opt_outs, i.refused, i.accepted, (e).category, (select relevo.category_rule((e).category))) is null
  union all
  select i.installation_id, i.project, false
    from (select n.installation_id from (select distinct unnest(find_draft_targets.named) as id) u
            cross join lateral (select n.installation_id from relevo.device_installations n where n.installation_id = u.id offset 0) n
           union all
          select n.installation_id from (select distinct unnest(find_draft_targets.owners) as owner) u
            cross join lateral (select n.installation_id from relevo.device_installations n where n.owner = u.owner
                                    and n.project = coalesce((e).project, (select relevo.project_of_owners()), n.project) offset 0) n) a
    cross join lateral (select i.* from relevo.device_installations i where i.installation_id = a.installation_id offset 0) i
   where (e).audience = 'installations' and i.seq > after_seq and i.seq <= upto_seq
     and relevo.may_receive(i) and relevo.fits_attributes(i.owner_attributes, i.attributes, (e).match_where) and relevo.unwanted(i.opt_outs, i.refused, i.accepted, (e).category, (select relevo.category_rule((e).category))) is null
$$;

revoke all on function relevo.find_draft_targets from public;
