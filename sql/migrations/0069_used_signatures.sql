-- needs relevo 0.2.0
-- A signature for a phone is good once: those that were used are remembered until they would have ended anyway.

create table relevo.used_signatures (
  digest bytea primary key check (octet_length(digest) = 32),
  expires_at timestamptz not null
);

create index used_signatures_expires_at on relevo.used_signatures (expires_at);

comment on table relevo.used_signatures is 'Signatures of the app''s server that a phone has used; only good ones are here, and cleanup deletes what ended a day ago.';
