-- Returns when the provider token of an APNs key was issued, and issues another one first if it is older than so many seconds, or of the future.
-- A process that waits for another one to issue it returns that one.
create or replace function relevo.apns_issue_time(team text, key text, longest_s int) returns timestamptz
  language plpgsql volatile
as $$
declare
  at constant timestamptz := date_trunc('second', clock_timestamp());
  oldest constant timestamptz := at - longest_s * interval '1 second';
  latest constant timestamptz := at + interval '1 minute';
  known timestamptz := (select t.issued_at from relevo.apns_tokens t where t.team_id = team and t.key_id = key);
begin
  if known > oldest and known <= latest then
    return known;
  end if;
  insert into relevo.apns_tokens as t (team_id, key_id, issued_at) values (team, key, at)
  on conflict (team_id, key_id) do update set issued_at = excluded.issued_at where t.issued_at <= oldest or t.issued_at > latest;
  return (select t.issued_at from relevo.apns_tokens t where t.team_id = team and t.key_id = key);
end
$$;

revoke all on function relevo.apns_issue_time from public;
