-- needs relevo 0.3.0
-- Gives a person who signs in with a provider of identities a row among the tokens, which nobody can bring as a token.

alter table relevo.api_tokens
  add column issuer text check (length(issuer) between 1 and 500),
  add column subject text check (length(subject) between 1 and 255),
  add constraint people_have_a_provider check ((issuer is null) = (subject is null));
comment on column relevo.api_tokens.issuer is 'Of a person: the provider of identities with which the person signs in. Nobody knows the token itself.';
comment on column relevo.api_tokens.subject is 'Of a person: what the provider calls the person, for ever.';
create unique index api_tokens_person on relevo.api_tokens (issuer, subject) where subject is not null;
comment on table relevo.used_signatures is
  'Signatures of the app''s server that a phone has used, and logins that came to their end; only good ones are here, and cleanup deletes what ended a day ago.';
