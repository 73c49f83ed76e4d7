-- Returns whether pushes of a category go to an owner's phones (push) or browsers (web), by what was chosen, or else by its rule.
create or replace function relevo.is_chosen(choices jsonb, channel text, c relevo.categories) returns boolean language sql immutable
  return (c).rule = 'mandatory' or coalesce((choices #>> array[channel, (c).category])::boolean, (c).rule = 'on');

revoke all on function relevo.is_chosen from public;
