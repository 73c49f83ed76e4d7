-- needs relevo 0.3.0
-- Lets cleanup remember how far it has copied a month's items of inboxes.

alter table relevo.archive_exports add column kept_blocks bigint not null default 0, add column kept_file oid;
comment on column relevo.archive_exports.kept_blocks is 'How many of its blocks were looked through for items that stay in inboxes for longer.';
comment on column relevo.archive_exports.kept_file is 'The file of those blocks: in another one, after a load from a dump or VACUUM FULL, rows lie elsewhere.';
