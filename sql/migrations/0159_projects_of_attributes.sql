-- needs relevo 0.3.0
-- Gives the index of attributes the phone's project, which the trigger notes from here on.

alter table relevo.attribute_index add column project text; -- the phone's

create or replace function relevo.index_attributes() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
declare
  before text[] := '{}';
  after text[] := '{}';
  kept text[] := '{}';
begin
  if tg_op <> 'INSERT' then
    before := coalesce(relevo.attribute_words(relevo.known_attributes(old.owner_attributes, old.attributes)), '{}');
  end if;
  if tg_op <> 'DELETE' then
    after := coalesce(relevo.attribute_words(relevo.known_attributes(new.owner_attributes, new.attributes)), '{}');
  end if;
  if old.project = new.project then
    kept := before;
  end if;
  delete from relevo.attribute_index x using unnest(before) as u(word) where x.word = u.word and x.seq = old.seq and (u.word <> all (after) or u.word <> all (kept));
  insert into relevo.attribute_index (word, seq, project) select u.word, new.seq, new.project from unnest(after) as u(word) where u.word <> all (kept) on conflict do nothing;
  return null;
end
$$;
