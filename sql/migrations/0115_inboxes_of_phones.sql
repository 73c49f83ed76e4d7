-- needs relevo 0.3.0
-- Gives phones the inbox of their owner.

alter table relevo.device_installations add column inbox_id bigint;
comment on column relevo.device_installations.inbox_id is 'The inbox of its owner in its project; null: it has no owner, or the reaper has not filled it in since 0.3.0.';
