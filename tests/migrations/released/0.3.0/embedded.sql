-- name: create_database
-- Makes the database of an embedded server, where no migration can run yet.
create database relevo;
