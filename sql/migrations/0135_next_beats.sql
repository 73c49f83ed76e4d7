-- needs relevo 0.3.0
-- Notes of each worker when it meant to be seen again, so that one that was killed is missed within seconds.

alter table relevo.workers add column next_beat_at timestamptz; -- when it meant to be seen again
