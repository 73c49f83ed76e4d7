-- name: list_tenders
-- Lists the tenders that fit, newest first, out of a bounded number that it looks at; returns where the next page begins.
with seen as materialized (
  select l.*
    from relevo.licitaciones l
   where (l.created_at, l.id) < (%(before_at)s::timestamptz, %(before_id)s::bigint)
   order by l.created_at desc, l.id desc
   limit %(look_at)s
), fitting as materialized (
  select s.*
    from seen s
   where (%(region)s::text is null or relevo.region_key(s.region) = relevo.region_key(%(region)s))
     and (%(tipo)s::text is null or relevo.text_key(btrim(s.tipo)) = relevo.text_key(btrim(%(tipo)s)))
     and (%(estado)s::text is null or relevo.text_key(btrim(s.estado)) = relevo.text_key(btrim(%(estado)s)))
     and (%(rubro)s::text is null or exists (select from unnest(s.rubros) as r(code) where starts_with(r.code, %(rubro)s)))
     and (%(monto_min)s::numeric is null or (s.monto >= %(monto_min)s and s.moneda = %(moneda)s))
     and (%(monto_max)s::numeric is null or (s.monto <= %(monto_max)s and s.moneda = %(moneda)s))
     and (%(text)s::text is null or strpos(relevo.words(s.nombre || ' ' || coalesce(s.descripcion, '')), btrim(relevo.words(%(text)s))) > 0)
   order by s.created_at desc, s.id desc
   limit %(limit)s
), last as (
  select l.created_at, l.id
    from (select f.created_at, f.id, 1 as rank from fitting f where (select count(*) from fitting) = %(limit)s
          union all
          select s.created_at, s.id, 2 from seen s where (select count(*) from seen) = %(look_at)s) l
   order by l.rank, l.created_at, l.id
   limit 1
)
select f.id, f.namespace, f.external_id, f.nombre, f.descripcion, f.organismo, f.region, f.tipo, f.estado, f.monto, f.moneda, f.monto_label,
       f.rubros, f.rubro_scheme, f.publicada_at, f.cierra_at, f.url, f.sources, f.withdrawn, f.created_at, f.updated_at, null as next_at, null as next_id
  from fitting f
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, l.created_at, l.id from last l;

-- name: read_tender
-- Reads one tender.
select l.id, l.namespace, l.external_id, l.nombre, l.descripcion, l.organismo, l.region, l.tipo, l.estado, l.monto, l.moneda, l.monto_label,
       l.rubros, l.rubro_scheme, l.publicada_at, l.cierra_at, l.url, l.sources, l.withdrawn, l.created_at, l.updated_at
  from relevo.licitaciones l
 where l.id = %(id)s;

-- name: find_tenders
-- Finds tenders by their code, namespace by namespace along their index, with the events that told of them.
with recursive space as (
  (select l.namespace from relevo.licitaciones l order by l.namespace limit 1)
  union all
  select n.namespace
    from space s
    cross join lateral (select l.namespace from relevo.licitaciones l where l.namespace > s.namespace order by l.namespace limit 1) n
)
select l.namespace, l.external_id, left(l.nombre, 200) as nombre, e.id, e.event_type, e.state, coalesce(p.deliveries, '{}') as deliveries
  from (select s.namespace from space s limit 1000) s
  join relevo.licitaciones l on l.namespace = s.namespace and l.external_id = %(code)s
  left join lateral (select e.id, e.event_type, e.state from relevo.notification_events e
                      where e.licitacion_id = l.id order by e.id desc limit %(limit)s) e on true
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = e.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 limit %(limit)s;
