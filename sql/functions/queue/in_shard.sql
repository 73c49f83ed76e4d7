-- Returns whether a row belongs to a shard; all do where there are none. It is inlined.
create or replace function relevo.in_shard(number bigint, shard int, shards int) returns boolean
  language sql immutable parallel safe
  return shards is null or number % shards = shard;

revoke all on function relevo.in_shard from public;
