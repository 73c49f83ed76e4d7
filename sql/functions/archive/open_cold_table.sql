-- Makes the table into which a month of a plain table moves, unless it is there. It has no columns for the text of personal events.
create or replace function relevo.open_cold_table(of_entity text, of_month date, rows_per_part int) returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
  insert into relevo.archive_exports (entity, month, state, relation, part_rows)
  values (of_entity, of_month, 'moving', place, rows_per_part) on conflict do nothing;
  if not found then
    return place;
  end if;
  if of_entity = 'licitaciones' then
    execute format('create table relevo_archive.%I (like relevo.licitaciones including constraints, primary key (id))', place);
  else
    execute format($sql$
      create table relevo_archive.%I (
        id bigint primary key, event_type text not null, event_key text, licitacion_id bigint, title text, body text, data jsonb, push jsonb,
        audience text not null, category text, lane text not null, at_most_once boolean not null, scheduled_at timestamptz not null,
        deadline_at timestamptz, match_rubros text[], match_region text, match_tipo text, match_monto numeric(20, 2), match_moneda text,
        match_words text, content_hash text, state text not null, event_day date, fanout_started_at timestamptz, fanout_finished_at timestamptz,
        targets_selected bigint not null, deliveries_created bigint not null, deliveries jsonb not null, ended_at timestamptz, end_reason text,
        created_at timestamptz not null, updated_at timestamptz not null,
        check (audience <> 'installations' or num_nonnulls(event_key, title, body, data, push, content_hash, end_reason,
          match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words) = 0))$sql$, place);
  end if;
  perform relevo.share_grants(of_entity, format('relevo_archive.%I', place)::regclass);
  return place;
end
$$;

revoke all on function relevo.open_cold_table from public;
