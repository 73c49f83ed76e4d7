-- needs relevo 0.2.0
-- The nightly prune finds old counts by their day, and does not read those of every phone. A count changes its day once a day.

create index event_counts_day on relevo.event_counts (day);
