-- name: end_leases
-- Lets every lease have ended a minute ago.
update relevo.claims set claimed_at = claimed_at - interval '1 hour', leased_until = now() - interval '1 minute';
