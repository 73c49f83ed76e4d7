-- name: bound_transaction
-- Bounds the current transaction, LOCAL so that a pooler cannot leak it: a paused holder must not block its successor.
select set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true);

-- name: bound_unflushed
-- Bounds the transaction likewise, and does not wait for the disk: for what is simply done again after a crash, because nothing is sent
-- before a later transaction that waits, and brings this one along.
select set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
       set_config('synchronous_commit', 'off', true);

-- name: bound_by_key
-- Bounds the transaction likewise, and makes it go by keys and by the due index: after a burst statistics are stale, and a scan
-- would touch every row. A plan that goes by keys fits every batch, so it is made once for each connection.
select set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('random_page_cost', '0', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: bound_relaxed
-- Bounds the transaction likewise, goes by keys, and does not wait for the disk, as above.
select set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('random_page_cost', '0', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('synchronous_commit', 'off', true);

-- name: ask_backend
-- Tells the number of the server process that answers.
select pg_backend_pid();

-- name: ask_version
-- Tells that the server answers, and its version number.
select current_setting('server_version_num')::int;
