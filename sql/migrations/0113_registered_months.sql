-- needs relevo 0.3.0
-- Lets archive-export remember which months an Iceberg catalog names, and why it did not take one.

alter table relevo.archive_exports
  add column registered_at timestamptz,
  add column register_error text constraint archive_exports_register_error_check check (length(register_error) between 1 and 500);
comment on column relevo.archive_exports.registered_at is 'When the Iceberg catalog named its files, or there were none in the store any more; null also without a catalog.';
comment on column relevo.archive_exports.register_error is 'Why the catalog did not take it at the last attempt.';
