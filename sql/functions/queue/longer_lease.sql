-- Returns until when a claim may be held once something of it was settled: for its lease from then on, but not after three leases in all.
create or replace function relevo.longer_lease(c relevo.claims, at timestamptz) returns timestamptz language sql stable
  return case when at < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond'
              then greatest(c.leased_until, at + c.lease_ms * interval '1 millisecond') else c.leased_until end;

revoke all on function relevo.longer_lease from public;
