"""The driver of conversations, over connections to Redis or Valkey servers.

It does not use redis-py's client, whose retries would send a write again without knowing whether the first one
happened.
"""

from __future__ import annotations

import asyncio

# blocking only:
# import os
# import time
# from hiredis import pack_command
# from scratchbus.engine.connections import NUMBERS, UNREAD, pack
# from scratchbus.engine.waits import call_within
# end
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from scratchbus.engine.connections import HUNG_UP, Commands, with_script_texts
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.links_async import AsyncLink
from scratchbus.engine.pools_async import AsyncPool
from scratchbus.engine.redirects import Address, Conversation, Sending, deliver
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import (
    Abandoned,
    Call,
    Collect,
    Interrupted,
    Joint,
    Pause,
    Queued,
    Request,
    Send,
    Sent,
    Within,
    Wrote,
)
from scratchbus.errors import ArchiveError, BusClosed, EngineError, LogError, ScratchbusError
from scratchbus.telemetry.counters import counts

T = TypeVar("T")


# asyncio only:
def _note_error(replies: asyncio.Future[list[Any]]) -> None:
    """Retrieve the error of a sent call: asyncio would log it if nobody collected the replies."""
    if not replies.cancelled():
        replies.exception()


_MAY_BLOCK = {"WAIT", "XREAD"}
"""Commands that may block, and so are sent over a connection that is not shared."""
# end


class AsyncEngine(AsyncPool):
    # asyncio only:
    """Drives conversations over asyncio connections. Tasks share one per server, except for calls that may block.

    Several event loops may use it one after another, but not at once.
    """

    # end
    # blocking only:
    # """Drives conversations over blocking connections; safe to share between threads and after a fork."""
    # end

    async def run(self, conversation: Conversation[T], *, is_part: bool = False) -> T:
        """Run a conversation to its end and return its result. Raises BusClosed.

        An EngineError, LogError, ArchiveError or BusClosed says what the conversation had already written. Engine
        errors are counted if this driver counts them, except in a conversation that `is_part` of another.
        """
        if self._is_closed and not is_part:
            raise BusClosed
        wrote: Wrote | None = None
        step: Callable[[Any], Request | Sending] = conversation.send
        reply: Any = None
        while True:
            try:
                request = step(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # it returns a T
            except (EngineError, LogError, ArchiveError, BusClosed) as error:
                if wrote is not None:
                    error.written(wrote.event_id, wrote.position, wrote.fence)
                if self._counts_errors and not is_part and isinstance(error, EngineError):
                    counts.engine_errors[type(error).__name__] += 1
                raise
            step, reply = conversation.send, None
            try:
                if isinstance(request, Call):
                    reply = await self.execute(request)
                elif isinstance(request, Sending):
                    reply = await self._send(request.address, request.commands, request.joint)
                elif isinstance(request, Wrote):
                    wrote = wrote or request
                elif isinstance(request, Abandoned):
                    wrote = None
                elif isinstance(request, Queued):
                    reply = await request.queues.run_async(request, partial(self.run, is_part=True))
                elif isinstance(request, Send):
                    reply = await self._send_ahead(request.call)
                elif isinstance(request, Collect):
                    reply = await self._collect(request.sent)
                elif isinstance(request, Within):
                    run = partial(self.run, request.conversation, is_part=True)
                    # asyncio only:
                    async with asyncio.timeout(request.seconds):
                        reply = await run()
                    # end
                    # blocking only:
                    # reply = run() if self._topology.only is not None else call_within(request.seconds, run)
                    # end
                elif isinstance(request, Pause):
                    # asyncio only:
                    await asyncio.sleep(request.seconds)
                    # end
                    # blocking only:
                    # time.sleep(request.seconds)
                    # end
                else:
                    reply = await self._call(request.call)
            except (Interrupted, ScratchbusError, redis_errors.RedisError, OSError) as error:
                step, reply = conversation.throw, error
            # asyncio only:
            except asyncio.CancelledError as error:  # so that the conversation releases what it holds
                step, reply = conversation.throw, error
            # end
            # blocking only:
            # except KeyboardInterrupt as error:  # so that the conversation releases what it holds
            #     step, reply = conversation.throw, error
            # end

    async def execute(self, call: Call) -> list[Any]:
        """Send one request. Raises Interrupted if the reply to a write was lost, else our own engine errors."""
        failure: Exception | None = None
        if (server := self._topology.only) is not None:
            try:
                return await self._send(server, call.commands, call.joint)
            except (redis_errors.RedisError, OSError) as error:
                failure = error
        return await self.run(deliver(self._topology, call, self.where, failure), is_part=True)

    async def _send_ahead(self, call: Call) -> Sent:
        """Send a call whose replies are collected later; if it cannot be sent now, it is sent when collected."""
        sent, server = Sent(call), self._topology.only or self._topology.address(call.shard)
        # asyncio only:
        self._forget_other_loops()
        link = self._shared.get(server) if server is not None else None
        if link is not None and link.is_open and not self._is_closed:
            sent.address, sent.link = server, link
            sent.replies = asyncio.ensure_future(link.exchange(call.commands))
            sent.replies.add_done_callback(_note_error)
        # end
        # blocking only:
        # if server is None or self._is_closed or self._pid != os.getpid():
        #     return sent
        # try:
        #     link = self._idle[server].pop()
        # except IndexError:
        #     link = self._make(server)
        # try:
        #     if not link.is_open:
        #         self._connect(link)
        #     sent.address, sent.link, sent.forget = server, link, self._forget
        #     link.send(pack(call.commands))
        #     self._sent.add(link)
        # except (ScratchbusError, redis_errors.RedisError, OSError):
        #     link.close()
        # except BaseException:
        #     link.close()
        #     raise
        # end
        return sent

    async def _collect(self, sent: Sent) -> list[Any]:
        """Return the replies to a call that was sent before. Raises what `execute` does."""
        if sent.address is None:
            return await self.execute(sent.call)
        try:
            return await self._send(sent.address, sent.call.commands, None, sent)
        except (redis_errors.RedisError, OSError) as failure:
            delivery = deliver(self._topology, sent.call, self.where, failure, sent.address)
        return await self.run(delivery, is_part=True)

    async def _send(
        self, server: Address, commands: Commands, joint: Joint | None, sent: Sent | None = None
    ) -> list[Any]:
        """Send commands to a server in one round trip, unless they are `sent`; return the replies. Raises BusClosed."""
        if self._is_closed and sent is None:
            raise BusClosed
        # asyncio only:
        self._forget_other_loops()
        if sent is not None:
            link = self._shared.get(server)
            if link is None or link is not sent.link:  # closed meanwhile, or opened in another event loop
                raise redis_errors.ConnectionError(HUNG_UP)
            return await self._converse(link, commands, None, sent)
        if _MAY_BLOCK.isdisjoint([command[0] for command in commands]):
            link = self._shared.get(server)
            if link is None or link.is_closed:
                link = self._shared[server] = self._make(server)
            return await self._converse(link, commands, joint)
        # end
        # blocking only:
        # if self._pid != os.getpid():
        #     self._forget_parent()
        # end
        try:
            # asyncio only:
            link = self._idle[server].pop()
            # end
            # blocking only:
            # link = self._idle[server].pop() if sent is None else self._take_sent(sent)
            # end
        except IndexError:
            link = self._make(server)
        self._busy.add(link)
        try:
            return await self._converse(link, commands, joint, sent)
        except (redis_errors.RedisError, OSError):
            if not link.is_open:
                self._close_idle(server)
            raise
        except BaseException:
            link.close()  # its reply may still be on the way
            raise
        finally:
            self._busy.discard(link)
            if link.is_open:
                self._idle[server].append(link)
            if self._is_closed:
                await self.close()  # others may have closed it meanwhile

    async def _converse(
        self, link: AsyncLink, commands: Commands, joint: Joint | None = None, sent: Sent | None = None
    ) -> list[Any]:
        """Send commands, unless they are `sent`, and any scripts that the engine lacks; return the replies."""
        if sent is None and not link.is_open:
            await self._connect_in_time(link)
        if self._is_closed and sent is None:  # `break_off` ran before this link was taken, or before it had a socket
            raise BusClosed
        # asyncio only:
        replies = await (link.exchange(commands, joint) if sent is None else sent.replies)
        # end
        # blocking only:
        # replies = []
        # try:
        #     if sent is not None:
        #         pass
        #     elif joint is not None:  # like `joint.packed`
        #         count = len(joint.alone) + joint.count
        #         link.send(b"*%d\r\n%b%b" % (count, joint.alone.packed, joint.own))
        #     elif len(commands) == 1 and NUMBERS.isdisjoint(map(type, commands[0])):
        #         link.send(pack_command(commands[0]))
        #     else:
        #         link.send(pack(commands))
        #     for _ in commands:
        #         while (reply := link.next_reply()) is UNREAD:
        #             link.receive()
        #         replies.append(reply)
        # except (TimeoutError, BlockingIOError):
        #     link.close()
        #     raise redis_errors.TimeoutError("Timeout reading from socket") from None
        # except BaseException:
        #     link.close()  # its reply may still be on the way
        #     raise
        # end
        for reply in replies:
            if isinstance(reply, Exception):
                return await self._load_scripts(link, commands, replies, joint)
        return replies

    async def _load_scripts(
        self, link: AsyncLink, commands: Commands, replies: list[Any], joint: Joint | None
    ) -> list[Any]:
        """Send the text of scripts that the engine lacks; return the replies. Raises the first other error.

        The script of joined calls is loaded first, since each of these calls is then sent again on its own.
        """
        missing = []
        for index, reply in enumerate(replies):
            if isinstance(reply, redis_errors.NoScriptError):
                missing.append(index)
            elif isinstance(reply, redis_errors.RedisError):
                if isinstance(reply, redis_errors.ReadOnlyError | redis_errors.ConnectionError):
                    await link.aclose()  # a demoted primary keeps its clients connected; reconnect
                raise reply
        loads = list(Script.reading)
        if joint is not None and joint.together is not None:
            loads.append(("SCRIPT", "LOAD", Script.known[joint.together[1]]))
        with suppress(redis_errors.ResponseError):  # users with read-only permissions may not
            await self._converse(link, tuple(loads))
        return replies[: missing[0]] + await self._converse(link, with_script_texts(commands, missing))
