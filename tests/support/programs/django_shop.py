"""A small shop in Django: an order and its event are written in one transaction, and a page waits for the event."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path

import relevo

_url = urlsplit(sys.argv[1])
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _url.path.removeprefix("/"),
            "USER": _url.username,
            "PASSWORD": _url.password,
            "HOST": _url.hostname,
            "PORT": _url.port,
        }
    },
    ROOT_URLCONF=__name__,
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()
logging.disable()  # an order that fails is no news here


class Order(models.Model):
    """An order that was shipped."""

    id = models.BigIntegerField(primary_key=True)

    class Meta:
        """Belongs to no installed app: there is only this file."""

        app_label = "shop"
        db_table = "orders"


def ship(_request: HttpRequest, order: int) -> JsonResponse:
    """Ship an order and tell of it; order 13 fails at the last moment."""
    with transaction.atomic():
        Order.objects.create(id=order)
        event = relevo.Event("order.shipped", str(order), f"{order} is on its way", audience="everyone")
        made = relevo.enqueue(connection, event)
        seen = relevo.get(connection, made.event_id)
        assert seen is not None
        if order == 13:
            raise ValueError("out of stock")
    return JsonResponse({"event": made.event_id, "state": seen.state, "title": seen.raw["title"]})


def wait(_request: HttpRequest, event: int) -> JsonResponse:
    """Wait for an event's end."""
    status = relevo.wait(connection, event, timeout_s=120)
    return JsonResponse({"state": status and status.state})


def early(_request: HttpRequest, event: int) -> JsonResponse:
    """Wait where nothing can come of it."""
    try:
        with transaction.atomic():
            relevo.wait(connection, event)
    except relevo.InvalidInputError as error:
        return JsonResponse({"refused": str(error)})
    return JsonResponse({})


urlpatterns = [path("ship/<int:order>", ship), path("wait/<int:event>", wait), path("early/<int:event>", early)]


def main() -> None:
    """Ask for each page and tell what came."""
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    client = Client(raise_request_exception=False)

    def ask(page: str) -> Any:
        answer = client.get(page)
        return answer.json() if answer.status_code == 200 else answer.status_code

    failed, shipped = ask("/ship/13"), ask("/ship/7")
    asked = {"failed": failed, "shipped": shipped, "early": ask(f"/early/{shipped['event']}")}
    print(json.dumps(asked | {"ended": ask(f"/wait/{shipped['event']}")}))
    connection.close()


main()
