-- needs relevo 0.3.0
-- Finds requests by when they were journalled: the page of a delivery and of an event read the journal of whole days. New months get the index
-- from their parent. Of the months that are there, small ones get it here, within moments; what a large one would take, workers that write the
-- journal would wait (docs/upgrades.md says how to index one meanwhile).

create index push_requests_journalled on only relevo.push_requests (journalled_at, id);

do $$
declare
  month regclass;
begin
  for month in
    select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'relevo.push_requests'::regclass and pg_table_size(i.inhrelid) < 128 * 1024 * 1024
     order by i.inhrelid
  loop
    execute format('create index on %s (journalled_at, id)', month);
    execute format('alter index relevo.push_requests_journalled attach partition %I.%I', 'relevo',
                   (select c.relname from pg_index x join pg_class c on c.oid = x.indexrelid
                     where x.indrelid = month and pg_get_indexdef(x.indexrelid) like '%(journalled_at, id)'));
  end loop;
end
$$;
