-- needs relevo 0.3.0
-- Lets a token have the role observer, which reads as a viewer does, but no text.

alter table relevo.api_tokens drop constraint api_tokens_role_check;
alter table relevo.api_tokens add constraint api_tokens_role_check check (role in ('app', 'observer', 'viewer', 'operator'));
