-- needs relevo 0.3.0
-- Lets a delivery say for which owner's inbox it was made.

alter table relevo.notification_deliveries add column inbox_id bigint;
comment on column relevo.notification_deliveries.inbox_id is
  'The inbox of the owner it was made for; null: its phone had no owner, or it is from before 0.4.0.';
