-- needs relevo 0.3.0
-- Notes in the index of attributes, too, that a phone moved to another project. It waits for whoever writes phones with the function of before.

create or replace trigger index_changed_attributes after update on relevo.device_installations
  for each row when (old.attributes is distinct from new.attributes or old.owner_attributes is distinct from new.owner_attributes
                     or old.project <> new.project and (new.attributes is not null or new.owner_attributes is not null))
  execute function relevo.index_attributes();
