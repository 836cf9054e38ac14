"""The driver of conversations, over connections to Redis or Valkey servers.

It does not use redis-py's client, whose retries would send a write again without knowing whether the first one
happened.
"""

# Generated from drivers_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hiredis import pack_command

from scratchbus.engine.connections import NUMBERS, UNREAD, Commands, pack, with_script_texts
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.links import Link
from scratchbus.engine.pools import Pool
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
from scratchbus.engine.waits import call_within
from scratchbus.errors import ArchiveError, BusClosed, EngineError, LogError, ScratchbusError
from scratchbus.telemetry.counters import counts

T = TypeVar("T")


class Engine(Pool):
    """Drives conversations over blocking connections; safe to share between threads and after a fork."""

    def run(self, conversation: Conversation[T], *, is_part: bool = False) -> T:
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
                    reply = self.execute(request)
                elif isinstance(request, Sending):
                    reply = self._send(request.address, request.commands, request.joint)
                elif isinstance(request, Wrote):
                    wrote = wrote or request
                elif isinstance(request, Abandoned):
                    wrote = None
                elif isinstance(request, Queued):
                    reply = request.queues.run(request, partial(self.run, is_part=True))
                elif isinstance(request, Send):
                    reply = self._send_ahead(request.call)
                elif isinstance(request, Collect):
                    reply = self._collect(request.sent)
                elif isinstance(request, Within):
                    run = partial(self.run, request.conversation, is_part=True)
                    reply = run() if self._topology.only is not None else call_within(request.seconds, run)
                elif isinstance(request, Pause):
                    time.sleep(request.seconds)
                else:
                    reply = self._call(request.call)
            except (Interrupted, ScratchbusError, redis_errors.RedisError, OSError) as error:
                step, reply = conversation.throw, error
            except KeyboardInterrupt as error:  # so that the conversation releases what it holds
                step, reply = conversation.throw, error

    def execute(self, call: Call) -> list[Any]:
        """Send one request. Raises Interrupted if the reply to a write was lost, else our own engine errors."""
        failure: Exception | None = None
        if (server := self._topology.only) is not None:
            try:
                return self._send(server, call.commands, call.joint)
            except (redis_errors.RedisError, OSError) as error:
                failure = error
        return self.run(deliver(self._topology, call, self.where, failure), is_part=True)

    def _send_ahead(self, call: Call) -> Sent:
        """Send a call whose replies are collected later; if it cannot be sent now, it is sent when collected."""
        sent, server = Sent(call), self._topology.only or self._topology.address(call.shard)
        if server is None or self._is_closed or self._pid != os.getpid():
            return sent
        try:
            link = self._idle[server].pop()
        except IndexError:
            link = self._make(server)
        try:
            if not link.is_open:
                self._connect(link)
            sent.address, sent.link, sent.forget = server, link, self._forget
            link.send(pack(call.commands))
            self._sent.add(link)
        except (ScratchbusError, redis_errors.RedisError, OSError):
            link.close()
        except BaseException:
            link.close()
            raise
        return sent

    def _collect(self, sent: Sent) -> list[Any]:
        """Return the replies to a call that was sent before. Raises what `execute` does."""
        if sent.address is None:
            return self.execute(sent.call)
        try:
            return self._send(sent.address, sent.call.commands, None, sent)
        except (redis_errors.RedisError, OSError) as failure:
            delivery = deliver(self._topology, sent.call, self.where, failure, sent.address)
        return self.run(delivery, is_part=True)

    def _send(self, server: Address, commands: Commands, joint: Joint | None, sent: Sent | None = None) -> list[Any]:
        """Send commands to a server in one round trip, unless they are `sent`; return the replies. Raises BusClosed."""
        if self._is_closed and sent is None:
            raise BusClosed
        if self._pid != os.getpid():
            self._forget_parent()
        try:
            link = self._idle[server].pop() if sent is None else self._take_sent(sent)
        except IndexError:
            link = self._make(server)
        self._busy.add(link)
        try:
            return self._converse(link, commands, joint, sent)
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
                self.close()  # others may have closed it meanwhile

    def _converse(
        self, link: Link, commands: Commands, joint: Joint | None = None, sent: Sent | None = None
    ) -> list[Any]:
        """Send commands, unless they are `sent`, and any scripts that the engine lacks; return the replies."""
        if sent is None and not link.is_open:
            self._connect(link)
        if self._is_closed and sent is None:  # `break_off` ran before this link was taken, or before it had a socket
            raise BusClosed
        replies = []
        try:
            if sent is not None:
                pass
            elif joint is not None:  # like `joint.packed`
                count = len(joint.alone) + joint.count
                link.send(b"*%d\r\n%b%b" % (count, joint.alone.packed, joint.own))
            elif len(commands) == 1 and NUMBERS.isdisjoint(map(type, commands[0])):
                link.send(pack_command(commands[0]))
            else:
                link.send(pack(commands))
            for _ in commands:
                while (reply := link.next_reply()) is UNREAD:
                    link.receive()
                replies.append(reply)
        except (TimeoutError, BlockingIOError):
            link.close()
            raise redis_errors.TimeoutError("Timeout reading from socket") from None
        except BaseException:
            link.close()  # its reply may still be on the way
            raise
        for reply in replies:
            if isinstance(reply, Exception):
                return self._load_scripts(link, commands, replies, joint)
        return replies

    def _load_scripts(self, link: Link, commands: Commands, replies: list[Any], joint: Joint | None) -> list[Any]:
        """Send the text of scripts that the engine lacks; return the replies. Raises the first other error.

        The script of joined calls is loaded first, since each of these calls is then sent again on its own.
        """
        missing = []
        for index, reply in enumerate(replies):
            if isinstance(reply, redis_errors.NoScriptError):
                missing.append(index)
            elif isinstance(reply, redis_errors.RedisError):
                if isinstance(reply, redis_errors.ReadOnlyError | redis_errors.ConnectionError):
                    link.close()  # a demoted primary keeps its clients connected; reconnect
                raise reply
        loads = list(Script.reading)
        if joint is not None and joint.together is not None:
            loads.append(("SCRIPT", "LOAD", Script.known[joint.together[1]]))
        with suppress(redis_errors.ResponseError):  # users with read-only permissions may not
            self._converse(link, tuple(loads))
        return replies[: missing[0]] + self._converse(link, with_script_texts(commands, missing))
