"""A slot: sends one order after another, each under a permit, and writes down how it ended. Claims no chunk."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from payments_async._errors import AuthenticationFailed, NotSent, OutcomeUnknown, PaymentsError, Rejected
from payments_async._retry import RetryPolicy
from payments_async._wire.bodies import private_texts
from payments_async.journal._faults import JournalClosed, JournalError, JournalUnavailable
from payments_async.journal._records import Outcome, Permit, Refusal
from payments_async.journal._states import News
from payments_async.outbox._ending import accepted, broken_off, finished, refused
from payments_async.outbox._holdings import Job
from payments_async.outbox._shift import Shift

__all__ = ["Slot"]

_ONE_TRY = RetryPolicy(attempts=1, total=5.0)  # one permit, one try; a wait must not outlive the lease
_WRITES = 6  # tries to write an outcome down; after them the order is unknown when the lease runs out
_WRITE_WAIT = 0.1  # seconds before the second, doubled each time
_UNREAD = 401  # the next order logs in again; nothing is the matter with the service


class _Sent(NamedTuple):
    """An order that was tried, whose outcome rides with the next permit."""

    job: Job
    outcome: Outcome
    retry_after: float | None = None


class Slot:
    """One of the places for orders under way. It never has more than one permit."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift
        self._clock = shift.payments.clock
        self._after: _Sent | None = None

    async def work(self) -> None:
        """Send until the shift is over. What was sent is written down even when this is cancelled."""
        shift = self._shift
        try:
            while True:
                job = shift.next_job()
                if job is not None:
                    await self._try(job)
                elif self._after is not None:
                    await self._write_down()
                elif shift.over:
                    return
                else:
                    await shift.wait()
        finally:
            if self._after is not None:
                await finished(self._write_down())

    async def _try(self, job: Job) -> None:
        shift, sent = self._shift, self._after
        if not shift.payments.is_logged_in and not await self._log_in(job):
            return
        try:
            granted = await shift.journal.permit(
                job.holding.chunk, job.claimed, after=None if sent is None else sent.outcome
            )
        except asyncio.CancelledError:
            self._after = None  # the journal has it all the same
            raise
        except JournalError as error:
            shift.fail(error)
            shift.pace.did_not_go()
            return
        self._after = None
        if sent is not None:
            self._written(sent)
        if not isinstance(granted, Permit):
            self._refused(job, granted)
        elif self._clock() >= job.holding.good_until:
            # we stalled: the lease has run out since the permit was granted, and somebody may hold the order now
            shift.pace.did_not_go()
            self._note(job, Outcome(permit=granted, news=News.NOT_SENT, message="the lease ran out before it was sent"))
        else:
            await self._send(job, granted)

    async def _log_in(self, job: Job) -> bool:
        shift = self._shift
        try:
            await shift.payments.log_in()
        except PaymentsError as error:
            shift.meter.give_back(job.claimed.amount)
            shift.holdings.put_back(job)
            self._trouble(error)
            if isinstance(error, AuthenticationFailed):
                shift.end(f"the credentials were refused: {error.message}")
            return False
        except BaseException:
            shift.pace.did_not_go()
            raise
        return True

    def _refused(self, job: Job, refusal: Refusal) -> None:
        shift = self._shift
        shift.meter.give_back(job.claimed.amount)
        if refusal.lease_lost:
            shift.holdings.drop(job.holding)
        shift.done(job)
        shift.pace.did_not_go()

    async def _send(self, job: Job, permit: Permit) -> None:
        shift, claimed = self._shift, job.claimed
        try:
            call = shift.call_of(
                claimed.request_id, claimed.amount, claimed.body, sent_before=permit.sent_before,
                private=lambda: private_texts(claimed.order),
            )  # fmt: skip
            result = await shift.payments.execute(call, retry=_ONE_TRY)
        except (ValueError, TypeError) as error:  # an InvalidOrder too: the session has sent another one under its id
            self._note(job, broken_off(permit, error, left=self._left(job)))
            await self._write_down(aside=error)
        except PaymentsError as error:
            self._note(job, refused(permit, error), error.retry_after)
            self._trouble(error)
        except BaseException as error:
            left = self._left(job) or shift.payments.knows(claimed.request_id)  # found by somebody meanwhile
            self._note(job, broken_off(permit, error, left=left))
            raise
        else:
            shift.pace.answered()
            self._note(job, accepted(permit, result))

    def _left(self, job: Job) -> bool:
        return job.claimed.request_id in self._shift.payments.unsettled

    def _note(self, job: Job, outcome: Outcome, retry_after: float | None = None) -> None:
        self._shift.ended(outcome.news)
        self._after = _Sent(job, outcome, retry_after)

    def _trouble(self, error: PaymentsError) -> None:
        pace = self._shift.pace
        match error:
            case AuthenticationFailed():
                # a fresh token was refused; a few times it may have been revoked since, by a login elsewhere for one
                pace.failed(error.message)
                if pace.is_stuck:
                    self._shift.end(f"the credentials were refused: {error.message}")
            case NotSent() if error.status == _UNREAD:
                pace.did_not_go()
            case NotSent() | OutcomeUnknown():
                pace.failed(error.message, retry_after=error.retry_after)
            case Rejected():
                pace.answered()
            case _:  # the login failed for now
                pace.failed(error.message, retry_after=error.retry_after)
        if pace.gave_up is not None:
            self._shift.end(pace.gave_up)

    async def _write_down(self, *, aside: Exception | None = None) -> None:
        sent, self._after = self._after, None
        if sent is None:
            return
        if await self._recorded(sent.outcome):
            self._written(sent, aside=aside)

    async def _recorded(self, outcome: Outcome) -> bool:
        shift = self._shift
        for turn in range(_WRITES):
            try:
                await shift.journal.record(outcome)
            except JournalClosed as error:
                shift.fail(error)
                return False
            except JournalUnavailable as error:
                shift.fail(error)
                await shift.payments.sleep(_WRITE_WAIT * 2**turn)
            except JournalError as error:
                shift.fail(error)
                return False
            else:
                return True
        return False

    def _written(self, sent: _Sent, *, aside: Exception | None = None) -> None:
        shift, job, news = self._shift, sent.job, sent.outcome.news
        if news is not News.NOT_SENT:
            shift.meter.written(news, job.claimed.amount)
            shift.done(job)
            return
        shift.meter.give_back(job.claimed.amount)
        if aside is not None:
            shift.set_aside(job, aside)
            return
        job.tries += 1
        shift.holdings.again(job, shift.pace.again_after(job.tries, sent.retry_after))
