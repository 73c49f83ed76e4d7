-- name: begin_transaction
-- Begins a transaction that looks again after it waited for a lock, whatever the database's default is. Its bounds go with it, in one message.
begin isolation level read committed;

-- name: bound_waits
-- Bounds the current transaction, LOCAL so that a pooler cannot leak it: a paused holder must not block its successor.
set local statement_timeout = %(statement_ms)s;
set local lock_timeout = %(lock_ms)s;
set local idle_in_transaction_session_timeout = %(idle_ms)s;

-- name: bound_session
-- Sets time-outs for every statement of a direct connection, and makes each statement look again after it waited for a lock, whatever the
-- database's default is. A connection that a pooler shares must not be set up so.
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
-- Lets the transaction commit without waiting for the disk. It is for work that Relevo repeats after a crash: Relevo sends nothing before a later
-- transaction that waits, and that one flushes this one, too.
set local synchronous_commit = off;

-- name: flush_session
-- Has a connection's commits wait for the disk where they would not; one that waits for more, such as a standby, still does.
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, false);

-- name: flush_transaction
-- Has the current transaction's commit wait for the disk where it would not, for a connection that a pooler shares.
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true);

-- name: ask_backend
-- Returns the number of the server process that answers, and whether a setting that statements rely on differs there. The database or a role may
-- change such a setting.
select pg_backend_pid(),
       current_setting('DateStyle') not like 'ISO%%' or exists (
         select from (values ('IntervalStyle', 'postgres'), ('standard_conforming_strings', 'on'), ('bytea_output', 'hex'), ('array_nulls', 'on'),
                             ('transform_null_equals', 'off'), ('default_transaction_isolation', 'read committed'), ('statement_timeout', '0'),
                             ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0')) as s(name, value)
          where current_setting(s.name) <> s.value) or current_setting('extra_float_digits')::int < 1;

-- name: pin_session
-- Gives a connection that leads to the server itself the settings that statements here rely on. Read-only stays as it is: it is a switch of
-- operators.
set DateStyle = 'ISO, MDY'; set IntervalStyle = postgres; set standard_conforming_strings = on; set bytea_output = hex; set array_nulls = on;
set transform_null_equals = off; set extra_float_digits = 1; set default_transaction_isolation = 'read committed'; set statement_timeout = 0;
set lock_timeout = 0; set idle_in_transaction_session_timeout = 0; set idle_session_timeout = 0;

-- name: pin_transaction
-- Gives the current transaction the settings that statements here rely on, for a connection that a pooler shares.
set local DateStyle = 'ISO, MDY'; set local IntervalStyle = postgres; set local standard_conforming_strings = on; set local bytea_output = hex;
set local array_nulls = on; set local transform_null_equals = off; set local extra_float_digits = 1;

-- name: ask_version
-- Returns the version number of the server, and so that it answers.
select current_setting('server_version_num')::int;
