-- Trigger: gives a new phone, or one with another owner, its owner's choices and inbox. A push that was claimed while the phone was in another
-- project is not sent: the token's version changes, so the push returns to the queue, and the next claim reads the phone's project.
create or replace function relevo.apply_owner_rules() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
declare
  rules record;
begin
  select r.* into rules from relevo.rules_for_phone(new.owner, new.project, new.provider) r;
  new.refused := rules.refused;
  new.accepted := rules.accepted;
  new.blocked := rules.blocked;
  new.owner_quiet := rules.quiet;
  new.owner_attributes := rules.attributes;
  new.inbox_id := relevo.inbox_of_owner(new.owner, new.project);
  if tg_op = 'UPDATE' and old.project <> new.project then
    new.token_version := greatest(new.token_version, old.token_version + 1);
  end if;
  return new;
end
$$;

revoke all on function relevo.apply_owner_rules from public;
