"""Two agents work on one page and in one session, each over MCP in its own process.

An analyst surveys sheets: it plans with the todo list, keeps a notepad, and adds its findings to the page. A reviewer
is notified of them, and confirms each or sends it back. The analyst's conversation becomes too long and is compacted;
a fork of its session examines one finding and reports back; and at the end of its run the analyst leaves notes for
its next one.

    python docs/examples/agent_run.py [URL]

Only the model is not real: its replies are the arguments of `say`. Without a URL, the program starts an embedded engine
in a temporary directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from scratchbus import AsyncBus
from scratchbus.context import estimate_tokens
from scratchbus.engine.embedded import server as embedded

PAGE, SESSION, TASK = "sheets", "survey", "Survey the six sheets"
LIMIT = 800  # tokens of a conversation; a real model has more

Call = tuple[str, dict[str, Any]]
Answer = dict[str, Any]


class Agent:
    """A model in a loop: its replies, the tools it calls, and the conversation so far."""

    def __init__(self, name: str, client: Client, bus: AsyncBus) -> None:
        self.name = name
        self.client = client
        self.bus = bus
        self.system = f"You work with spreadsheets.\n\n{client.instructions}"
        self.conversation: list[str] = []

    async def say(self, text: str, *calls: Call) -> list[Answer]:
        """Process a reply of the model: call its tools, and return their answers."""
        self.conversation.append(f"assistant: {text}")
        answers = [await self.call(tool, **arguments) for tool, arguments in calls]
        self.conversation += [f"tool: {json.dumps(answer)}" for answer in answers]
        return answers

    async def call(self, tool: str, **arguments: Any) -> Answer:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def compact_if_necessary(self, last_words: Call, summary: str) -> None:
        """If the conversation is long, warn the model, process its last words, and compact the conversation."""
        context, used = self.bus.context, estimate_tokens("\n".join(self.conversation))
        if context.should_warn(used, LIMIT, session=SESSION):
            self.conversation.append(f"user: {context.warning}")
            await self.say("I add what I still need to the notepad.", last_words)
            self.conversation = [await context.after_compaction(SESSION, system=self.system, summary=summary)]
            show(f"the conversation of {self.name} after compaction", self.conversation[0])

    async def show_context(self, moment: str) -> None:
        show(f"the context of {self.name} {moment}", (await self.call("get_context"))["text"])

    async def wait_for(self, look: Callable[[], Awaitable[list[Answer]]]) -> list[Answer]:
        """Look again whenever the page has changed, until `look` returns something."""
        async with self.client.listen(resource_subscriptions=[f"scratch://{PAGE}/active"]) as news:
            changes = aiter(news)
            while not (seen := await look()):
                await anext(changes)
        return seen


async def analyst(agent: Agent, url: str) -> None:
    """Survey the sheets."""
    bus = agent.bus
    async with bus.run("analyst", TASK, ask=last_reply) as run:
        agent.conversation.append(f"user: {run.whoami}\n\n{TASK}")
        await agent.say(
            "I begin with a plan.",
            (
                "todo",
                {"todos": [item("1", "Survey all sheets", "in_progress"), item("2", "Fix Q3"), item("3", "Report")]},
            ),
            (
                "write_notepad",
                {"content": "## Plan\n- [ ] Survey all sheets\n- [ ] Fix Q3\n- [ ] Report\n\n## Findings\n"},
            ),
        )
        await agent.show_context("at the beginning")
        gap, double = await agent.say(
            "Q3 does not add up, and I think I know why.",
            observation("Q3: the summary says 1.2M, the rows add up to 1.155M", confidence=0.95),
            observation("July is in the rows of EMEA twice, 234-250 and 251-267", confidence=0.6),
        )
        run.step("surveyed", sheets=6)
        await agent.say(
            "I note it down.",
            (
                "update_notepad",
                {"operation": "append", "content": "- Q3 is off by 45,000; July may be in EMEA twice\n"},
            ),
            ("add_note", {"content": "Dates in sheet 1 are YYYY-MM-DD", "tags": ["sheet-1"]}),
            ("todo", {"todos": [item("1", status="completed"), item("2", status="in_progress")], "merge": True}),
        )
        await agent.wait_for(lambda: status_of(agent, double["id"], "pending_review"))
        await agent.compact_if_necessary(
            ("update_notepad", {"operation": "append", "content": "- The reviewer wants proof that July is doubled\n"}),
            "All six sheets are surveyed. Q3 is off; the reviewer doubts the reason.",
        )
        (fork,) = await agent.say("Somebody should look at EMEA row by row.", ("fork_session", {}))
        proof = await look_closer(url, fork["session"], double["id"])
        await agent.say(
            "It is proven.",
            (
                "update_observation",
                {"id": double["id"], "status": "active", "confidence": 0.99, "metadata": {"proof": proof}},
            ),
            ("resolve_observation", {"id": proof, "reason": "taken into account"}),
            ("link_observation", {"id": gap["id"], "action": "remove rows 251-267"}),
        )
        await agent.wait_for(lambda: status_of(agent, double["id"], "resolved"))
        rest = [item("2", status="completed"), item("3", status="completed")]
        await agent.say("Done.", ("todo", {"todos": rest, "merge": True}))
        await agent.show_context("at the end")
        run.done("Q3 was off by 45,000: July was in EMEA twice.")
    show("what the analyst will see when its next run begins", await bus.scratchpad("analyst").whoami())


async def look_closer(url: str, session: str, doubted: str) -> str:
    """Prove the doubted finding in a fork of the session, and return the id of its report."""
    async with working("helper", url, session) as helper:
        (pad,) = await helper.say("What do we know?", ("read_notepad", {}))
        assert "July may be in EMEA twice" in pad["content"]  # the fork starts with a copy of the notepad
        _, report = await helper.say(
            "Every row of 251-267 has its twin.",
            ("write_notepad", {"content": "All 17 rows compared; nothing else to do.", "revision": pad["revision"]}),
            ("report_result", {"result": f"17 of 17 rows are doubled, as {doubted} says."}),
        )
    return str(report["id"])


async def reviewer(agent: Agent, _: str) -> None:
    """Review the analyst's findings until none is left."""
    verdicts = {"Q3": "the sums are right", "July": "how do you know? show it row by row"}

    async def waiting() -> list[Answer]:
        active = (await agent.call("get_active_observations"))["observations"]
        return [each for each in active if each["type"] == "risk_alert" and "claimed_by" not in each]

    while verdicts:
        for found in await agent.wait_for(waiting):
            (claim,) = await agent.say(f"I look at {found['id']}.", ("claim_observation", {"id": found["id"]}))
            this = {"id": found["id"], "fence": claim["fence"]}
            key = next(key for key in ("Q3", "July") if found["content"].startswith(key))
            verdict = verdicts[key]
            if key == "July" and found.get("confidence", 1) < 0.9:
                doubted = {**this, "status": "pending_review", "metadata": {"review": verdict}, "release": True}
                await agent.show_context("as it finds something to doubt")
                await agent.say(f"I doubt it: {verdict}", ("update_observation", doubted))
            else:
                await agent.say(f"I agree: {verdict}", ("resolve_observation", {**this, "reason": verdict}))
                del verdicts[key]


def item(id: str, content: str | None = None, status: str | None = None) -> Answer:
    given = {"id": id, "content": content, "status": status}
    return {name: value for name, value in given.items() if value is not None}


def observation(content: str, confidence: float) -> Call:
    return "add_observation", {"type": "risk_alert", "content": content, "confidence": confidence}


async def status_of(agent: Agent, id: str, status: str) -> list[Answer]:
    seen = (await agent.call("get_observation", id=id))["observation"]
    return [seen] if seen["status"] == status else []


async def last_reply(prompt: str) -> str:
    """Answer the prompt at the end of a run."""
    show("what the analyst is asked at the end of its run", prompt)
    return (
        '```json\n{"scratchpad": "Check July in EMEA first: it was there twice. The reviewer wants proof by row."}\n```'
    )


def show(title: str, text: str) -> None:
    print(f"=== {title}\n{text}\n", flush=True)


@asynccontextmanager
async def working(name: str, url: str, session: str = SESSION) -> AsyncIterator[Agent]:
    """Start an MCP server for an agent, and yield the agent connected to it."""
    arguments = ["mcp", "--tools", "all", "--url", url, "--agent", name, "--session", session, "--page", PAGE]
    program = ["-m", "scratchbus.cli", *arguments]
    server = StdioServerParameters(command=sys.executable, args=program, env=dict(os.environ))
    async with AsyncBus.connect(url, source=name) as bus, Client(server) as client:
        yield Agent(name, client, bus)


async def run_agent(name: str, url: str) -> None:
    async with working(name, url) as agent:
        await {"analyst": analyst, "reviewer": reviewer}[name](agent, url)


async def run_both(url: str) -> int:
    """Run both agents at the same time, each in its own process; then print their output, one after the other."""
    agents = [
        await asyncio.create_subprocess_exec(sys.executable, __file__, url, name, stdout=asyncio.subprocess.PIPE)
        for name in ("analyst", "reviewer")
    ]

    async def output_of(agent: asyncio.subprocess.Process) -> str:
        output, _ = await agent.communicate()
        for other in agents:
            if agent.returncode and other.returncode is None:
                other.terminate()  # otherwise it waits for the failed one forever
        return output.decode()

    print(*await asyncio.gather(*map(output_of, agents)), sep="", end="")
    return max(abs(agent.returncode or 0) for agent in agents)


def main() -> int:
    match sys.argv[1:]:
        case [url, name]:
            asyncio.run(run_agent(name, url))
            return 0
        case [url]:
            return asyncio.run(run_both(url))
    with tempfile.TemporaryDirectory(prefix="agent-run-") as directory:
        try:
            return asyncio.run(run_both(f"embedded:{directory}"))
        finally:
            embedded.stop(Path(directory))


if __name__ == "__main__":
    sys.exit(main())
