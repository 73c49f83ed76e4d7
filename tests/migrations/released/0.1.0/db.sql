-- name: bound_transaction
-- Bounds the current transaction, LOCAL so that a pooler cannot leak it: a paused holder must not block its successor.
select set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true);

-- name: ask_version
-- Tells that the server answers, and its version number.
select current_setting('server_version_num')::int;
