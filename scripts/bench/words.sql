-- name: give_locales
-- Lets phones speak four languages, and be in twelve time zones.
update relevo.device_installations i
   set locale = (array['en-US', 'es-CL', 'es-MX', 'pl-PL'])[1 + i.seq % 4],
       timezone = (array['America/Santiago', 'America/Lima', 'America/Bogota', 'America/New_York', 'Europe/Madrid', 'Europe/Warsaw', 'Asia/Tokyo',
                         'Australia/Sydney', 'Africa/Lagos', 'Asia/Kolkata', 'Pacific/Auckland', 'America/Mexico_City'])[1 + i.seq % 12];
