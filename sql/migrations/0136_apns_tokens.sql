-- needs relevo 0.3.0
-- Gives every process the same issue time for the provider token of an APNs key.

create table relevo.apns_tokens (
  team_id   text not null check (length(team_id) between 1 and 200),
  key_id    text not null check (length(key_id) between 1 and 200),
  issued_at timestamptz not null,
  primary key (team_id, key_id)
);
comment on table relevo.apns_tokens is 'When the provider token of each APNs key was issued: every process signs the same token from it.';
