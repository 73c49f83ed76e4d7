-- needs relevo 0.3.0
-- Lets types say whether taps on their pushes are reported, and what on one phone ends what waits on the owner's others.

alter table relevo.event_types add column opens boolean, add column complete_on text check (complete_on in ('read', 'opened'));
comment on column relevo.event_types.opens is 'Whether phones report taps on its pushes, and taps and reads are counted; null means that they are not.';
comment on column relevo.event_types.complete_on is 'What on one phone ends what still waits on the owner''s others: that it is read, or opened.';
