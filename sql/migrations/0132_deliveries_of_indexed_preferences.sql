-- needs relevo 0.3.0
-- Lets fan-out find preferences that ask for digests, too.

alter table relevo.preference_index add column delivery text; -- the preference's; null: now
comment on table relevo.preference_index is
  'Each enabled preference, under its most selective dimension: topic, else keyword, rubro, region, tipo, else everything; sure if that alone decides.';
insert into relevo.preference_index (bucket, seq, installation_id, name, sure, delivery)
select b.bucket, i.seq, i.installation_id, p.name, b.sure, p.delivery
  from relevo.notification_preferences p
  join relevo.device_installations i on i.installation_id = p.installation_id
  cross join lateral relevo.preference_buckets(p) b
 where p.delivery is not null and relevo.may_receive(i)
on conflict do nothing;
