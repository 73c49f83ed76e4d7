-- Begins to close the slots whose time has come: what was fanned out until now is their window, and what commits later falls into the next.
-- Returns how many began. Windows are numbered by one transaction at a time.
create or replace function relevo.open_digests(given_at timestamptz) returns int
  language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  number_now bigint;
  opened int;
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'digest' and s.source = '' and s.paused_at is not null)
     or not exists (select from relevo.digest_slots s where s.closes_at <= at and s.upto_number is null) then
    return 0;
  end if;
  perform relevo.take_turn('digest_numbers');
  number_now := nextval('relevo.digest_numbers');
  update relevo.digest_events set number = number_now where number is null;
  update relevo.digest_slots s
     set upto_number = number_now, phone_cursor = 0, upto_seq = (select coalesce(max(i.seq), 0) from relevo.device_installations i)
   where (s.project, s.delivery, s.zone) in (select d.project, d.delivery, d.zone from relevo.digest_slots d
                                              where d.closes_at <= at and d.upto_number is null
                                              order by d.closes_at for no key update skip locked);
  get diagnostics opened = row_count;
  return opened;
end
$$;

revoke all on function relevo.open_digests from public;
