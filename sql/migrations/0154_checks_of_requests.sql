-- needs relevo 0.3.0
-- Drops the CHECKs of requests that only a mistake of Relevo's own functions could meet: PostgreSQL parses each again for every statement.

alter table relevo.push_requests
  drop constraint push_requests_project_check,
  drop constraint push_requests_outcome_check,
  drop constraint times_fit_an_archive;
