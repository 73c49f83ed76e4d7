-- name: begin_transaction
-- Begins a transaction that looks again after it waited for a lock, whatever the database's default is. Its bounds go with it, in one message.
begin isolation level read committed;

-- name: bound_waits
-- Bounds the current transaction, LOCAL so that a pooler cannot leak it: a paused holder must not block its successor.
set local statement_timeout = %(statement_ms)s;
set local lock_timeout = %(lock_ms)s;
set local idle_in_transaction_session_timeout = %(idle_ms)s;

-- name: bound_session
-- Bounds every single statement of a connection that leads to the server itself, and has it look again after it waited for a lock, whatever
-- the database's default is; a connection that a pooler shares must not be set up so.
set statement_timeout = %(statement_ms)s;
set lock_timeout = %(lock_ms)s;
set default_transaction_isolation = 'read committed';

-- name: force_index_lookups
-- Makes the transaction's plans use index lookups, by key and in the due index: after a burst statistics are stale, and a scan would read every
-- row. A plan of lookups fits every batch, so it is made once for each connection. Descending an index is priced at next to nothing, because
-- the planner keeps the height that it read when the index was small.
set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off; set local enable_hashjoin = off;
set local enable_mergejoin = off; set local random_page_cost = 0; set local cpu_operator_cost = 0.0001; set local jit = off;
set local plan_cache_mode = force_generic_plan;

-- name: leave_unflushed
-- Lets the transaction commit without waiting for the disk: for what is simply done again after a crash, because nothing is sent before a
-- later transaction that waits, and brings this one along.
set local synchronous_commit = off;

-- name: flush_session
-- Has a connection's commits wait for the disk where they would not; one that waits for more, such as a standby, still does.
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, false);

-- name: flush_transaction
-- Has the current transaction's commit wait for the disk where it would not, for a connection that a pooler shares.
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true);

-- name: ask_backend
-- Returns the number of the server process that answers.
select pg_backend_pid();

-- name: ask_version
-- Returns the version number of the server, and so that it answers.
select current_setting('server_version_num')::int;
