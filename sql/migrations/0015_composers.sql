-- needs relevo 0.1.0
-- Which event types a worker composes by itself, so that one that cannot leaves them to it.

alter table relevo.workers add column composers text[] not null default '{}';

comment on column relevo.workers.composers is 'The event types for which this process has a composer of its own.';
