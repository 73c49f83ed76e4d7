-- needs relevo 0.3.0
-- Lets workers report the push services that they cannot reach.

alter table relevo.workers add column unreachable jsonb not null default '[]' check (jsonb_typeof(unreachable) = 'array');
comment on column relevo.workers.unreachable is
  'Push services that its process cannot reach: service (a provider, or one project), reason, failures, since, retry_at.';
