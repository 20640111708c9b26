"""The views: ask for a withdrawal, and look how it stands."""

# mypy: disable-error-code="import-untyped"

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from bank.models import Withdrawal
from bank.payments import TooLittleMoney, payments, withdraw
from payments_async.journal import OrdersDiffer


def withdrawal(request: HttpRequest, request_id: str) -> HttpResponse:
    """POST asks for it, GET tells its state. Who may withdraw from which account is yours to check."""
    if request.method != "POST":
        known = Withdrawal.objects.filter(pk=request_id).first()
        return HttpResponse("unknown id", status=404) if known is None else HttpResponse(known.state)
    try:
        state = withdraw(payments(), request_id, request.POST["account"], int(request.POST["amount"]))
    except TooLittleMoney:
        return HttpResponse("the balance is too low", status=422)
    except OrdersDiffer:
        return HttpResponse("another withdrawal has this id", status=409)
    return HttpResponse(state)


urlpatterns = [path("withdrawals/<str:request_id>", csrf_exempt(withdrawal))]
