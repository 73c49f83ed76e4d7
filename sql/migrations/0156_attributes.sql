-- needs relevo 0.3.0
-- Keeps attributes of owners, and the index by which fan-out finds phones with an attribute.

alter table relevo.owner_rules add column attributes jsonb;
comment on column relevo.owner_rules.attributes is 'What the app knows of the owner: a flat object; null: nothing.';

create table relevo.attribute_index (
  word text not null,
  seq  bigint not null, -- the phone's
  primary key (word, seq)
);
comment on table relevo.attribute_index is
  'Each value of each attribute that a phone has, its own or its owner''s, as attribute_words writes it: an audience by attributes finds its phones here, and the phone''s row decides.';

create function relevo.index_attributes() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  return null;
end
$$;
