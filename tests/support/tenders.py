"""A tender that preferences match, and a month whose partition is missing."""

from __future__ import annotations

from relevo.client.values import TenderMatching

NEWS = TenderMatching(
    text="aseo de oficinas", rubros=("76111500",), region="Región del Ñuble", tipo="LE", monto=100, moneda="CLP"
)
DROP_THE_MONTH = """
do $$ begin execute 'drop table relevo.notification_deliveries' || to_char(now() at time zone 'UTC', '_YYYY_MM'); end $$
"""
