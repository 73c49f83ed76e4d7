-- needs relevo 0.3.0
-- Makes room for whose phones were unregistered.

alter table relevo.push_tallies add column gone bigint[];
comment on column relevo.push_tallies.gone is 'Whose phones were unregistered, as hashes of their owners, or of their ids; null where nobody noted them.';
