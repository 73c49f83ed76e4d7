-- needs relevo 0.3.0
-- Finds the phones that the reaper has to give the inbox of their owner.

create index device_installations_unfilled on relevo.device_installations (seq) where owner is not null and inbox_id is null; -- since 0.3.0
