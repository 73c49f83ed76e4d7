-- The provider tokens of APNs: one issue time per key, for every process.

-- name: get_issue_time
-- Returns when the provider token of a key was issued, in seconds since 1970, and its age; issues another one if it is too old.
select extract(epoch from i.issued_at)::bigint, extract(epoch from clock_timestamp() - i.issued_at)::float8
  from relevo.apns_issue_time(%(team_id)s, %(key_id)s, %(longest_s)s) as i(issued_at);
