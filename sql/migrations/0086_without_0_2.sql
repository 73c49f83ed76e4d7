-- needs relevo 0.3.0
-- Drops the functions that only relevo 0.2.0 called.

drop function relevo.fan_out_small_1, relevo.pick_small_events_1, relevo.fan_out_slice_1, relevo.slice_end_1, relevo.slice_targets, relevo.claim_due_2;
