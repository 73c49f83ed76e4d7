-- needs relevo 0.3.0
-- Keeps attributes of owners and phones, the index by which fan-out finds phones with them, and of an event those that it is for.

alter table relevo.owner_rules add column attributes jsonb;
comment on column relevo.owner_rules.attributes is 'What the app knows of the owner: a flat object; null: nothing.';

alter table relevo.device_installations add column attributes jsonb, add column owner_attributes jsonb;
comment on column relevo.device_installations.attributes is 'What the app knows of this phone: a flat object, before the attributes of its owner; null: nothing.';
comment on column relevo.device_installations.owner_attributes is 'The attributes of its owner; owner_rules has them, and this is their copy.';

alter table relevo.notification_events add column match_where jsonb;
comment on column relevo.notification_events.match_where is 'Of an audience by attributes: the values of each attribute of which a phone must have one.';

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

create trigger index_new_attributes after insert on relevo.device_installations
  for each row when (new.attributes is not null or new.owner_attributes is not null)
  execute function relevo.index_attributes();
create trigger index_changed_attributes after update on relevo.device_installations
  for each row when (old.attributes is distinct from new.attributes or old.owner_attributes is distinct from new.owner_attributes)
  execute function relevo.index_attributes();
create trigger index_old_attributes after delete on relevo.device_installations
  for each row when (old.attributes is not null or old.owner_attributes is not null)
  execute function relevo.index_attributes();
