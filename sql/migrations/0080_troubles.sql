-- needs relevo 0.2.0
-- An error that is not an outage belongs to the one thing it was met on, which is left alone while the rest goes on; here operators read of it.

create table relevo.troubles (
  kind text not null check (kind in ('lane', 'claim', 'delivery', 'receipts', 'subscription', 'part')),
  name text not null check (length(name) between 1 and 300),
  error text not null check (length(error) between 1 and 500),
  failures int not null default 1 check (failures > 0),
  first_at timestamptz not null default now(),
  last_at timestamptz not null default now(),
  retry_at timestamptz not null,
  primary key (kind, name)
);
comment on table relevo.troubles is 'Errors that were met on one lane, claim, delivery, subscription or part of a cycle, which is left alone until it is tried again.';
