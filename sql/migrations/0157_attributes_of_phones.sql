-- needs relevo 0.3.0
-- Keeps attributes of phones, and notes each value in the index.

alter table relevo.device_installations add column attributes jsonb, add column owner_attributes jsonb;
comment on column relevo.device_installations.attributes is 'What the app knows of this phone: a flat object, before the attributes of its owner; null: nothing.';
comment on column relevo.device_installations.owner_attributes is 'The attributes of its owner; owner_rules has them, and this is their copy.';

create trigger index_new_attributes after insert on relevo.device_installations
  for each row when (new.attributes is not null or new.owner_attributes is not null)
  execute function relevo.index_attributes();
create trigger index_changed_attributes after update on relevo.device_installations
  for each row when (old.attributes is distinct from new.attributes or old.owner_attributes is distinct from new.owner_attributes)
  execute function relevo.index_attributes();
create trigger index_old_attributes after delete on relevo.device_installations
  for each row when (old.attributes is not null or old.owner_attributes is not null)
  execute function relevo.index_attributes();
