-- Returns how the row of an event names the audience that was given: owners are phones found by their owner, and everyone with some attributes is found by these.
create or replace function relevo.audience_kind(event jsonb) returns text
  language sql immutable
return case when event ->> 'audience' = 'owners' then 'installations'
            when event ->> 'audience' = 'everyone' and event ->> 'where' is not null then 'attributes'
            else event ->> 'audience' end;

revoke all on function relevo.audience_kind from public;
