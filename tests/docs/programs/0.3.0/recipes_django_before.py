"""A Django project with one model, before the snippets of its recipe."""

import sys
import types
from urllib.parse import urlsplit

import django
from django.conf import settings

url = urlsplit(DSN)  # noqa: F821 given by play.py
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path.removeprefix("/"),
            "USER": url.username,
            "PASSWORD": url.password,
            "HOST": url.hostname,
            "PORT": url.port,
        }
    },
    USE_TZ=True,
)
django.setup()
from django.db import connection, models  # noqa: E402 once it is set up


class User:
    """Somebody who is logged in."""

    pk = 7
    is_authenticated = True


class Order(models.Model):
    """An order."""

    status = models.TextField(default="new")

    @property
    def user(self):
        """Return whose it is."""
        return User()

    class Meta:
        """Belongs to no installed app."""

        app_label = "shop"


with connection.schema_editor() as editor:
    editor.create_model(Order)
Order.objects.create(pk=17)
sys.modules["shop.phones"] = types.ModuleType("shop.phones")
sys.modules["shop.phones"].owner_of = lambda user: f"user-{user.pk}"
sys.modules["shop"] = types.ModuleType("shop")
sys.modules["shop.models"] = types.ModuleType("shop.models")
sys.modules["shop.models"].Order = Order
