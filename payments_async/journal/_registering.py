"""How a load is registered on this machine, block by block, each before the journal's own commit. Writes no journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence

import attrs

from payments_async.journal._faults import HeldElsewhere
from payments_async.journal._registry import Loading, Registry, held_elsewhere

__all__ = ["Registering"]


@attrs.frozen(kw_only=True)
class Registering:
    """One load that the registry hears of.

    Attributes:
        knows: Tells which of some orders the journal holds.
        adopt: Called when orders of another batch, which may have been sent, are to be this one's from now on.
        clock: Unix seconds.
    """

    registry: Registry
    loading: Loading
    knows: Callable[[Sequence[str]], Awaitable[Container[str]]]
    adopt: Callable[[HeldElsewhere], Awaitable[None]] | None
    clock: Callable[[], float]

    async def hold(self, request_ids: Sequence[str]) -> None:
        """Register a block.

        Raises:
            HeldElsewhere: Some of it may have been sent already, and nobody has said that it is ours now.
        """
        if self.loading.is_complete:
            return
        held = await asyncio.to_thread(self.registry.hold, self.loading, request_ids)
        ours = [request_id for request_id, holder in held.items() if holder.journal == self.loading.journal]
        known = await self.knows(ours) if ours else ()  # the journal itself says what is wrong with these
        held = {request_id: holder for request_id, holder in held.items() if request_id not in known}
        if not held:
            return
        error = held_elsewhere(held, self.loading.journal)
        if self.adopt is None:
            raise error
        await self.adopt(error)  # first of all the journal keeps them back
        await asyncio.to_thread(self.registry.hold, self.loading, request_ids, adopt=True)

    async def complete(self) -> None:
        """From now on any of these orders may have been sent."""
        if not self.loading.is_complete:
            await asyncio.to_thread(self.registry.ready, self.loading, self.clock())
