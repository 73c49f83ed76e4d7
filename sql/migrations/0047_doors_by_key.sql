-- needs relevo 0.2.0
-- An app keeps its connections, and PostgreSQL the plans it made on them: one made while a table was tiny reads all of it, and goes on doing so
-- as the table grows, until it is analysed. What writes many at once looks up by keys whatever it is told of sizes.

alter function relevo.write_events(jsonb) set enable_seqscan = off;
alter function relevo.write_installations(jsonb) set enable_seqscan = off;
