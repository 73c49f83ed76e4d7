-- needs relevo 0.3.0
-- Makes room for locks that only the roles of Relevo can take.

create unlogged table relevo.turns (
  key bigint primary key -- the hash of a name
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table relevo.turns is
  'Where transactions that name one thing take turns, see relevo.take_turn: empty for everybody, and held by whoever inserted a key and has not ended.';

create unlogged table relevo.shared_locks (
  key bigint primary key -- the hash of a name
) with (fillfactor = 50);
comment on table relevo.shared_locks is
  'Names that transactions lock together or alone, see relevo.lock_shared and relevo.lock_alone: owners, and a fixed one. Only locks change a row.';
