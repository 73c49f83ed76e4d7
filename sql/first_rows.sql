-- The first rows of a new database: the push services that come with Relevo, and the partitions of this month and its neighbours.

insert into relevo.providers values ('expo'), ('fcm'), ('apns'), ('webpush'), ('webhook');

insert into relevo.owner_sharing (shared) values (false);

select relevo.ensure_partitions((now() at time zone 'UTC' - interval '1 month')::date, 4);
