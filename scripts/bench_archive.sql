-- name: make_month
-- Makes the partitions of a month.
select relevo.ensure_partitions(%(month)s, 1);

-- name: load_deliveries
-- Makes final deliveries of a month by the number, one in fifty failed.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
  deadline_at, last_attempt_at, completed_at, created_at, updated_at, provider_ticket_id, provider_receipt_id, last_error_code, last_error_message)
select %(month)s::date + (g / 100000) %% 28, g / 10000, gen_random_uuid(), 'new_licitacion',
       case when g %% 50 = 0 then 'failed' else 'ok' end, 1 + g %% 3,
       %(month)s::timestamptz + interval '5 days', %(month)s::timestamptz + g * interval '13 us', %(month)s::timestamptz + g * interval '17 us',
       %(month)s::timestamptz, %(month)s::timestamptz + g * interval '17 us', gen_random_uuid()::text, gen_random_uuid()::text,
       case when g %% 50 = 0 then 'MessageRateExceeded' end, case when g %% 50 = 0 then 'Demasiados mensajes, "prueba" más tarde: ' || g end
  from generate_series(1, %(rows)s::int) g;

-- name: compose_vacuum
-- Writes the statement that leaves a relation as it would be after months.
select format('vacuum analyze %%s', %(relation)s::text);

-- name: compose_copy_out
-- Writes the statement that copies a relation to a file as CSV.
select format('copy %%s to %%L (format csv)', %(relation)s::text, %(path)s::text);

-- name: compose_copy_in
-- Writes the statement that copies CSV from a file into a relation.
select format('copy %%s from %%L (format csv)', %(relation)s::text, %(path)s::text);

-- name: compose_twin
-- Writes the statement that makes an empty table of the same columns.
select format('create table %%s (like %%s)', %(twin)s::text, %(relation)s::text);

-- name: compose_drop
-- Writes the statement that drops a table.
select format('drop table if exists %%s', %(relation)s::text);

-- name: compose_move
-- Writes the statement that moves a batch of rows by deleting them.
select format('with old as materialized (select event_day, id from %%1$s order by event_day, id limit 10000), '
              'gone as (delete from %%1$s d using old where d.event_day = old.event_day and d.id = old.id returning d.*) insert into %%2$s select * from gone',
              %(relation)s::text, %(twin)s::text);

-- name: tune_session
-- Lets statements of the measuring session run as long as they need.
set statement_timeout = 0;

-- name: load_items
-- Makes tenders of a month by the number, with nulls, several alphabets, and the largest and smallest amounts and dates there are.
insert into relevo.licitaciones (namespace, external_id, nombre, descripcion, fingerprint, monto, moneda, rubros, sources, created_at, updated_at,
                                 publicada_at, cierra_at, region, notificada)
select 'bench', g::text, 'Construcción de ñandúes 📋 "n.º ' || g || '"', case when g %% 3 = 0 then null else repeat('á, ', g %% 50 + 1) end, md5(g::text),
       case g %% 5 when 0 then null when 1 then 999999999999999999.99 when 2 then 0 when 3 then 0.01 else g * 1.37 end,
       case when g %% 5 = 0 then null else 'CLP' end, case when g %% 4 = 0 then '{}' else array[(g * 7919)::text, '', E'\\ " {,}', null] end, '{folder}',
       %(month)s::timestamp at time zone 'UTC' + g * interval '1 second', case when g %% 2 = 0 then '1900-01-01Z' else timestamptz '2300-01-01Z' end,
       case when g %% 2 = 0 then timestamptz '1900-01-01Z' end, case when g %% 2 = 0 then timestamptz '2200-01-01Z' end,
       case when g %% 7 = 0 then null else 'Región de Ñuble' end, g %% 2 = 0
  from generate_series(1, %(rows)s::int) g;

-- name: compose_hash
-- Writes the statement that hashes a relation's rows, all columns, whatever their order.
select format('select count(*), sum((''x'' || left(h, 15))::bit(60)::bigint)::text, md5(min(h) || max(h)) from (select md5(record_send(row(t.*))) as h from %%s t) x',
              %(relation)s::text);
