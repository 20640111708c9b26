"""The application's own tables."""

# mypy: disable-error-code="import-untyped,misc"

from django.db import models


class Account(models.Model):
    """A customer's money, in whole shillings."""

    name = models.TextField(primary_key=True)
    phone_number = models.TextField()
    balance = models.BigIntegerField()


class Withdrawal(models.Model):
    """What a customer asked for. Its id is the request id of its order."""

    id = models.TextField(primary_key=True)
    account = models.ForeignKey(Account, on_delete=models.PROTECT)
    amount = models.BigIntegerField()
    state = models.TextField(default="planned")
