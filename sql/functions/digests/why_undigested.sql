-- Returns in a sentence why no digest tells an event that was to be told by one.
create or replace function relevo.why_undigested(code text) returns text language sql immutable
  return case code when 'deadline_before_digest' then 'Its deadline comes before the digest that would include it.'
                   when 'deadline_passed' then 'Its deadline passed before the digest closed.'
                   when 'event_ended' then 'The event ended before the digest closed.'
                   when 'handled_elsewhere' then 'It was handled before the digest closed.'
                   when 'opted_out' then 'The phone opted out of its category before the digest closed.'
                   when 'refused' then 'Its owner refused its category before the digest closed.'
                   when 'not_accepted' then 'Its owner has not accepted its category.'
                   when 'preference_changed' then 'No preference of the phone matches it any more.'
                   when 'not_allowed' then 'The phone could not get pushes when the digest closed.'
                   when 'owner_changed' then 'The phone got another owner, or lost its owner, before the digest closed.'
                   when 'project_changed' then 'The phone moved to another project before the digest closed.'
                   else 'A digest of this phone includes it.' end;

revoke all on function relevo.why_undigested from public;
