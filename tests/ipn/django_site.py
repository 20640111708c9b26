"""A Django application with one view, set up once for a process: its settings are the process's."""

from __future__ import annotations

import functools
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from payments_async.ipn import Receiver

urlpatterns: list[Any] = []


@functools.cache
def set_up() -> None:
    """Once, without a database of its own."""
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], DATABASES={}, USE_TZ=True)
    django.setup()


def client_of(receiver: Receiver) -> Client:
    """What asks an application whose view hands everything to this receiver."""
    set_up()

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        about = request.META
        answer = receiver.take_sync(request.body, about["QUERY_STRING"], request.headers, about["REMOTE_ADDR"])
        return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))

    urlpatterns[:] = [path("ipn", view)]
    return Client()
