# SPDX-License-Identifier: Apache-2.0
"""A web service in the shape of a FastAPI application: a lifespan, handlers, and a background task that hears what is stored.

Without the framework, so that it runs anywhere; with it `lifespan` goes to FastAPI(lifespan=...) and handlers get decorators.
One AsyncClient serves all handlers. A handler whose caller goes away is cancelled; its put is then stored once or not at all.

    python examples/web_service.py tcp://127.0.0.1:5556 STATE_DIRECTORY
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import oncemq


class App:
    """What a framework would call `app.state`."""

    client: oncemq.AsyncClient
    seen: list[str]


async def watch(app: App) -> None:
    """The background task: everything that is stored, once and in order, until it is cancelled."""
    async for message in app.client.listen("orders"):
        app.seen.append(message.value.decode())


@asynccontextmanager
async def lifespan(app: App, address: str, state: str) -> AsyncIterator[None]:
    async with await oncemq.connect_async(address, id="web", state=state) as app.client:
        app.seen = []
        await app.client.subscribe("orders")
        watcher = asyncio.create_task(watch(app))
        yield
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def create_order(app: App, what: str) -> dict[str, int | None]:
    """POST /orders: answered once the order is on the broker's disk."""
    receipt = await app.client.put("orders", what.encode())
    return {"number": receipt.offset}


async def main(address: str, state: str) -> None:
    app = App()
    async with lifespan(app, address, state):
        answers = await asyncio.gather(*(create_order(app, what) for what in ("tea", "cake", "milk")))
        print(sorted(answer["number"] for answer in answers))
        while len(app.seen) < 3:
            await asyncio.sleep(0.01)
        print(sorted(app.seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
