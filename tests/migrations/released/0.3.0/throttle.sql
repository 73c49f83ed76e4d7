-- name: count_written
-- Counts the rows that were ever written to this database, by anybody.
select tup_inserted + tup_updated + tup_deleted from pg_stat_database where datname = current_database();
