"""The hooks of Claude Code: `hook session-start`, `user-prompt`, `pre-compact` and `stop`.

A hook reads JSON on standard input, and answers on standard output as its event expects. It always exits with 0: Claude
Code takes 2, which is also what a wrong option exits with elsewhere, as an order to block the prompt, the compaction or
the end of the turn. What goes wrong is said on standard error, and the agent works on without the bus.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple

import click

import scratchbus
from scratchbus.cli.commands import PAGE, BusGroup, listed, session_option
from scratchbus.cli.context import rules_option, with_rules
from scratchbus.cli.hook_marks import Marks
from scratchbus.cli.invocation import Invocation, OpenPage, pass_invocation
from scratchbus.cli.shell_completion import PROGRAM
from scratchbus.cli.text import one_line
from scratchbus.daemon import usage_line
from scratchbus.errors import InvalidField, InvalidInput, ScratchbusError, shown

MAX_INPUT: Final = 8 * 1024 * 1024
"""The most bytes of standard input that a hook reads."""

MAX_OUTPUT: Final = 9_500
"""The most characters of a context: of more than 10,000, Claude Code shows the model only the beginning."""

MAX_MATCHES: Final = 3_000
"""The most characters that are added to a prompt."""

MAX_SECONDS: Final = 10.0
"""The most seconds that a hook may keep the agent waiting."""

_MAX_QUERY: Final = 4_000
_PRE_COMPACT: Final = """\
The notepad below, the open items of the todo list, notes and observations are kept outside of the conversation, and are
shown to the agent again after compaction. Do not repeat them in the summary. Keep what they lack: the working state,
findings, decisions with their reasons, and the next step."""
_TASK: Final = "The work of this conversation"
_TOOL: Final = "If you have the tool update_scratchpad, call it instead, with the revision that get_context returns."

HookInput = dict[str, Any]


class _TooSlow(Exception):
    """A hook took too long. Not an OSError, which would be treated as a lost connection and retried."""


class _Harmless(BusGroup):
    """A group whose commands always exit with 0 and report problems on standard error."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the group's own options."""
        with _errors_reported():
            return super().make_context(*args, **options)
        raise click.exceptions.Exit(0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the hook."""
        with _errors_reported():
            return super().invoke(ctx)


@contextmanager
def _errors_reported() -> Iterator[None]:
    """Report errors in the `with` on standard error, and continue after it."""
    try:
        yield
    except click.exceptions.Exit:  # `--help`
        raise
    except click.exceptions.NoArgsIsHelpError as wanted:
        wanted.show()
    except Exception as problem:
        message = usage_line(problem, PROGRAM) if isinstance(problem, click.ClickException) else str(problem)
        text = f"{PROGRAM}: {one_line(message or type(problem).__name__)}; the agent goes on without it"
        print(text, file=sys.stderr, flush=True)  # noqa: T201  # what standard error is for


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise _TooSlow in the `with` after the time limit."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield  # signals reach the main thread alone
        return

    def stop(*_: object) -> None:
        raise _TooSlow(f"the hook took longer than {MAX_SECONDS:g} s; check the engine with `{PROGRAM} status`")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS, 1.0)  # repeatedly, in case the first is caught as another error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_input() -> HookInput:
    """Return the JSON object on standard input. Raises InvalidInput."""
    import json  # late, as all that `--help` does not need

    if sys.stdin.isatty():
        raise InvalidInput("a hook reads the JSON of its event on standard input; Claude Code starts it, see `setup`")
    text = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(text) > MAX_INPUT:
        raise InvalidInput(f"standard input is longer than {MAX_INPUT:,} bytes; a hook reads no more")
    if not text.strip():
        raise InvalidInput("standard input is empty; a hook reads the JSON of its event there, see `setup`")
    try:
        hook_input = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(f"standard input is not JSON: {shown(text[:100])}") from None
    if not isinstance(hook_input, dict):
        raise InvalidInput(f"standard input is not a JSON object: {shown(hook_input)}")
    return hook_input


def _text_of(hook_input: HookInput, name: str) -> str:
    """Return a text of the event. Raises InvalidField."""
    value = hook_input.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidField(name, f"{shown(value)} is not a text; Claude Code gives one in the JSON of the event")
    return value


class _HookCall(NamedTuple):
    """The input of a hook: the JSON of its event, the owner of the memory, and the open page."""

    hook_input: HookInput
    session: str
    agent: str | None
    scopes: Sequence[str]
    opened: OpenPage


def _hook(function: Callable[..., None]) -> Callable[..., Any]:
    """Make a function a hook that gets its input."""

    @wraps(function)
    def command(
        invocation: Invocation, session_id: str | None, agent: str | None, knowledge: str | None, **options: Any
    ) -> None:
        with _in_time():
            hook_input = _read_input()
            owner = session_id or _text_of(hook_input, "session_id")
            invocation.speak_as("claude") if agent is None else invocation.act_for(agent)
            with invocation.open() as opened:
                function(invocation, _HookCall(hook_input, owner, agent, listed(knowledge) or (), opened), **options)

    session = session_option("The session whose memory is used.  [$SCRATCHBUS_SESSION, else Claude Code's]")
    agent_option = click.option("--agent", metavar="NAME", help="The agent, as the source of its writes.")
    knowledge_option = click.option(
        "--knowledge", metavar="SCOPES",
        help="The users or projects whose preferences and facts are shown, separated by commas.",
    )  # fmt: skip
    return session(agent_option(knowledge_option(pass_invocation(command))))


_SHARED = (*PAGE, "source")


@click.group("hook", cls=_Harmless)
def hook() -> None:
    """Answer a hook of Claude Code.

    Claude Code starts these commands, which `scratchbus setup claude` configures. Each reads the JSON of its event on
    standard input. They exit with 0 even when something is wrong, which they say on standard error.
    """


@hook.command(
    "session-start",
    examples=("scratchbus hook session-start --agent claude --session s1 < event.json",),
    shared=_SHARED,
)
@rules_option
@_hook
def session_start(invocation: Invocation, call: _HookCall, rules: str | None) -> None:
    """Give a session that starts, resumes or was compacted its context.

    Claude Code reads its rules itself, so --rules is for others that take its hooks.
    """
    page = call.opened.page.name
    found = _context(call, MAX_OUTPUT, agent=call.agent, page=page, record=True, **with_rules(rules))
    _add_context(invocation, "SessionStart", found.text)


@hook.command(
    "user-prompt", examples=("scratchbus hook user-prompt --agent claude --session s1 < event.json",), shared=_SHARED
)
@_hook
def user_prompt(invocation: Invocation, call: _HookCall) -> None:
    """Give the agent the notes and observations that are relevant to a prompt."""
    query, opened = _text_of(call.hook_input, "prompt")[:_MAX_QUERY], call.opened
    found = opened.bus.context.surface(
        query, MAX_MATCHES, session=call.session, page=opened.page.name, counter=len, record=True
    )
    if found.matches:
        _add_context(invocation, "UserPromptSubmit", found.text)


@hook.command("pre-compact", examples=("scratchbus hook pre-compact --session s1 < event.json",), shared=_SHARED)
@_hook
def pre_compact(invocation: Invocation, call: _HookCall) -> None:
    """Tell the summarizer which memory is kept outside the conversation, and what to keep in the summary."""
    context = _context(call, MAX_OUTPUT - len(_PRE_COMPACT) - 2)
    invocation.out.line(f"{_PRE_COMPACT}\n\n{context.text}")  # plain text is added to the instructions of the summary


@hook.command("stop", examples=("scratchbus hook stop --agent claude --session s1 < event.json",), shared=_SHARED)
@_hook
def stop(invocation: Invocation, call: _HookCall) -> None:
    """Ask a finishing agent what its future self should know, once per conversation.

    The answer becomes its scratchpad.
    """
    agent, hook_input = call.agent, call.hook_input
    if agent is None:
        raise InvalidField("agent", "is missing; give --agent, whose scratchpad the answer is for")
    marks = Marks.of(invocation.settings())
    conversation = _text_of(hook_input, "session_id")
    pad = call.opened.bus.scratchpad(agent)
    if hook_input.get("stop_hook_active", False) is False:
        pad.read()  # Unauthorized is said now, not when the agent has answered
        if marks.add(conversation):
            reason = pad.end_of_run_prompt(_TASK, "completed", "You are about to finish.")
            invocation.out.document({"decision": "block", "reason": f"{reason}\n{_TOOL}"})
    elif marks.is_open(conversation) and isinstance(reply := hook_input.get("last_assistant_message"), str):
        accepted = pad.accept_reply(reply, event_id=marks.event_id(conversation))
        if accepted.error is not None and '"scratchpad"' in reply:  # else the answer was given to the tool
            raise ScratchbusError(f"the answer of the agent was not stored: {accepted.error}")
        marks.close(conversation)


def _context(call: _HookCall, budget: int, **options: Any) -> scratchbus.Context:
    """Return the context of the session and the scopes, within this many characters."""
    return call.opened.bus.context.assemble(
        session=call.session, scopes=call.scopes, budget=budget, counter=len, **options
    )


def _add_context(invocation: Invocation, event: str, text: str) -> None:
    if text:
        invocation.out.document({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
