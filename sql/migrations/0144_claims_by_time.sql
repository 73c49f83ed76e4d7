-- needs relevo 0.3.0
-- Finds the claims that are held without reading those that are over, whose rows a long snapshot keeps.

create index claims_by_time on relevo.claims (claimed_at);
