"""Several handlers at once."""

from __future__ import annotations

# asyncio only:
import asyncio

# end
from collections.abc import Awaitable, Callable, Sequence

# blocking only:
# from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
# from inspect import isasyncgen, iscoroutine, iscoroutinefunction, isgenerator
# end
from scratchbus.errors import InvalidInput, shown

MAX_AT_ONCE = 1_000
"""The most handlers that may run at once."""


Worker = Callable[[], Awaitable[object]]


def check_handler(handler: object) -> None:
    """Raise InvalidInput unless a handler can be called."""
    if not callable(handler):
        raise InvalidInput(f"{shown(handler)} is not a handler; give a function")
    # blocking only:
    # its_call = type(handler).__call__
    # if iscoroutinefunction(handler) or iscoroutinefunction(its_call):  # its event would be acked, and it never run
    #     name = getattr(handler, "__name__", type(handler).__name__)
    #     raise InvalidInput(f"handler {name!r} is a coroutine function, which this bus cannot run; write def")
    # end


# blocking only:
# def check_reply(reply: object) -> None:
#     """Raise InvalidInput if a handler returned a coroutine or generator, which has not run, so no ack may follow."""
#     if iscoroutine(reply):
#         reply.close()
#     elif not isgenerator(reply) and not isasyncgen(reply):
#         return
#     raise InvalidInput(f"the handler returned {shown(reply)}, which this bus cannot run; give a plain function")
# end


async def run_together(workers: Sequence[Worker], halt: Worker) -> None:
    """Run workers at once until all have ended. When one fails, `halt` ends the others, and its error is raised."""
    if len(workers) == 1:
        await workers[0]()
        return
    # asyncio only:
    tasks = [asyncio.ensure_future(worker()) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        try:
            await halt()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise
    # end
    # blocking only:
    # with ThreadPoolExecutor(len(workers), "handler") as pool:
    #     try:
    #         running = [pool.submit(worker) for worker in workers]
    #         for each in wait(running, return_when=FIRST_EXCEPTION).done:
    #             each.result()
    #     except BaseException:
    #         halt()
    #         raise
    # end
