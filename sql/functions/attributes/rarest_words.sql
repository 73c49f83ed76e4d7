-- Returns the words of the attribute of an audience that the fewest phones have, as far as the first thousand of each word tell: fan-out looks these up.
create or replace function relevo.rarest_words(wanted jsonb) returns text[]
  language sql stable
  set enable_seqscan = off -- lookups only
as $$
  select g.words
    from (select w.key, relevo.attribute_words(jsonb_build_object(w.key, w.value)) as words from jsonb_each(wanted) as w(key, value)) g
   order by (select sum(c.phones) from unnest(g.words) as u(word)
              cross join lateral (select count(*) as phones from (select from relevo.attribute_index x where x.word = u.word limit 1000) f) c), g.key
   limit 1
$$;

revoke all on function relevo.rarest_words from public;
