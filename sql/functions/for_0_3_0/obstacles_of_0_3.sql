-- Returns obstacles as 0.3.0 knows them, which would skip what it does not know: what slid into quiet hours it sends, and what waited for their end stays in the queue.
create or replace function relevo.obstacles_of_0_3(obstacles text[]) returns text[] language sql immutable
  return array_replace(array_replace(obstacles, 'quiet_hours', null), 'quiet_expired', 'deadline_passed');

revoke all on function relevo.obstacles_of_0_3 from public;
