"""What `relevo config` prints of settings, and what it hides."""

from __future__ import annotations

import io

import pytest
import rich

from relevo import config
from relevo.config.settings import fields_of
from relevo.core.errors import ConfigError
from support.load_settings import load, row


class TestDescribe:
    """What `relevo config` prints."""

    def test_every_setting_once_with_its_meaning(self) -> None:
        """All settings are listed, each with one sentence."""
        rows = config.describe(load())
        assert sorted(each.name.lower() for each in rows) == sorted(fields_of(config.Settings))
        assert all(each.meaning[0].isupper() and each.meaning.endswith(".") for each in rows)

    def test_values_read_like_the_environment(self) -> None:
        """Lists, truth values and unset ones are shown as one would write them."""
        settings = load(WORKER_CYCLES="a,b", OUTBOX_WORKER_ENABLED="0")
        assert row(settings, "WORKER_CYCLES").value == "a,b"
        assert row(settings, "OUTBOX_WORKER_ENABLED")[1:3] == ("false", "true")
        assert row(settings, "WORKER_ID")[1:3] == ("not set", "")

    def test_derived_defaults_explain_themselves(self) -> None:
        """A default that depends on another setting says on which, and shows its present value."""
        heartbeat = row(load(OUTBOX_LEASE_DURATION_MS="1000"), "OUTBOX_LEASE_HEARTBEAT_MS")
        assert heartbeat.value == "250"
        assert heartbeat.default == "15000, at most OUTBOX_LEASE_DURATION_MS / 4"
        assert heartbeat.source == "derived"

    @pytest.mark.parametrize(
        ("dsn", "shown"),
        [
            ("postgresql://relay:hunter2@db/relevo", "postgresql://relay:***@db/relevo"),
            ("postgres://:hunter2@db:5432,db2:5432/r", "postgres://:***@db:5432,db2:5432/r"),
            ("postgresql://re@azure:hunter2@db/r", "postgresql://re@azure:***@db/r"),
            ("postgresql://relay:hunter2%40hunter2@db/r", "postgresql://relay:***@db/r"),
            (
                "postgresql://db/r?user=u&password=hunter2&port=1",
                "postgresql://db/r?user=u&password=***&port=1",
            ),
            ("postgresql://u:hunter2@db/r?sslpassword=hunter2", "postgresql://u:***@db/r?sslpassword=***"),
            ("host=db password=hunter2 user=u", "host=db password=*** user=u"),
            ("host=db password=a&hunter2 user=u", "host=db password=*** user=u"),
            ("host=db PASSWORD=hunter2", "host=db PASSWORD=***"),
            ("postgresql://relay:pass@hunter2@db/r", "postgresql://relay:***@db/r"),
            (r"host=db password = 'it\'s hunter2' user=u", "host=db password = '***' user=u"),
            (r"password=hun\ hunter2 host=db", "password=*** host=db"),
            ("postgresql://relay@db/relevo", "postgresql://relay@db/relevo"),
        ],
    )
    def test_passwords_are_hidden_in_addresses(self, dsn: str, shown: str) -> None:
        """Whatever form an address has, even a wrong one, only its password is hidden, here and in repr."""
        settings = load()
        vars(settings)["database_url"] = dsn  # some are refused when they are checked
        printed = io.StringIO()
        rich.print(settings, file=printed)
        assert row(settings, "DATABASE_URL").value == shown
        assert "hunter2" not in f"{settings!r} {settings!s} {printed.getvalue()}"

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("https://h/ocds?page=1&api_key=hunter2", "https://h/ocds?page=1&api_key=***"),
            ("https://h/ocds?apikey=hunter2&page=1", "https://h/ocds?apikey=***&page=1"),
            ("https://h/ocds?key=hunter2", "https://h/ocds?key=***"),
            ("https://h/ocds?X-Amz-Signature=hunter2", "https://h/ocds?X-Amz-Signature=***"),
            ("https://hunter2@h/ocds", "https://***@h/ocds"),
            ("https://hunter2:@h/ocds?token=hunter2", "https://***@h/ocds?token=***"),
        ],
    )
    def test_keys_are_hidden_in_web_addresses(self, address: str, shown: str) -> None:
        """A key in the query or in place of the user is not shown, the rest of the address is; nor when it is refused."""
        settings = load(OCDS_URL=address, EXPO_BASE_URL="https://h/")
        assert row(settings, "OCDS_URL").value == shown
        assert "hunter2" not in repr(settings)
        with pytest.raises(ConfigError) as refused:
            load(OCDS_URL=address.replace("https", "gopher"))
        assert "hunter2" not in str(refused.value)

    @pytest.mark.parametrize(
        "dsn",
        [
            "host=/run/pg dbname=r",
            "postgresql://h1:5432,h2:5433/r",
            "host=@abstract",
            "service=relay",
            "dbname=r",
        ],
    )
    def test_every_kind_of_address_is_accepted(self, dsn: str) -> None:
        """Whatever libpq takes is an address: sockets, several hosts, services, pairs."""
        assert load(DATABASE_URL=dsn).database_url == dsn

    def test_secrets_are_only_set_or_not_set(self) -> None:
        """A setting that is all secret shows neither its value nor its length."""

        settings = load(EXPO_ACCESS_TOKEN="hunter2")
        assert row(settings, "EXPO_ACCESS_TOKEN").value == "set"
        assert row(load(), "EXPO_ACCESS_TOKEN").value == "not set"
        assert "hunter2" not in f"{settings!r} {config.describe(settings)}"
