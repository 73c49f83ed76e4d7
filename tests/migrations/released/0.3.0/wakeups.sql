-- name: listen_wake
-- Hears which cycle has work.
listen relevo_wake;

-- name: listen_lost
-- Hears which claims were taken back by a reaper.
listen relevo_lost;

-- name: listen_selftest
-- Hears this process's own test calls.
listen relevo_selftest;

-- name: send_selftest
-- Sends a test call by the ordinary connection, the way wake-ups come.
select pg_notify('relevo_selftest', %(nonce)s);

-- name: send_wake
-- Wakes a cycle in every process of the fleet.
select pg_notify('relevo_wake', %(cycle)s);
