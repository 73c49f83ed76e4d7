-- Returns windows such as ["22:00-07:00", "sat,sun 07:00-10:00"] as minutes of the local week; refuses what is none, by name. One whose end is
-- not after its beginning ends on the next day; without days it is on each.
create or replace function relevo.quiet_windows(given jsonb) returns int4multirange
  language plpgsql stable
as $$
declare
  names constant text[] := array['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'];
  one text;
  part text[];
  starts int;
  lasts int;
  first int;
  windows int4multirange := '{}';
begin
  if jsonb_typeof(given) is distinct from 'array' or jsonb_array_length(given) > 50 then
    perform relevo.refuse('windows must be a list of at most 50, such as ["22:00-07:00", "sat,sun 07:00-10:00"]');
  end if;
  for one in select w #>> '{}' from jsonb_array_elements(given) w loop
    part := regexp_match(one, E'^(?:((?:mon|tue|wed|thu|fri|sat|sun)(?:,(?:mon|tue|wed|thu|fri|sat|sun)){0,6}) )?([01]\\d|2[0-3]):([0-5]\\d)-([01]\\d|2[0-3]|24(?=:00)):([0-5]\\d)$');
    if part is null then
      perform relevo.refuse(format('a window must be like 22:00-07:00 or sat,sun 07:00-10:00, got %s', relevo.shown(to_jsonb(one))));
    end if;
    starts := part[2]::int * 60 + part[3]::int;
    lasts := (part[4]::int * 60 + part[5]::int - starts + 1439) % 1440 + 1;
    for first in select (array_position(names, d) - 1) * 1440 + starts from unnest(coalesce(string_to_array(part[1], ','), names)) as d loop
      windows := windows + int4multirange(int4range(first, least(first + lasts, 10080)));
      if first + lasts > 10080 then
        windows := windows + int4multirange(int4range(0, first + lasts - 10080));
      end if;
    end loop;
  end loop;
  if windows = '{[0,10080)}' then
    perform relevo.refuse('windows must leave some time of the week; to send somebody nothing at all, block them');
  end if;
  return windows;
end
$$;

revoke all on function relevo.quiet_windows from public;
