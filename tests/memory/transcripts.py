"""Transcripts of agents at work, and their facts as an extractor would return them."""

from __future__ import annotations

from typing import NamedTuple


class Transcript(NamedTuple):
    """A transcript, and the facts of it that are worth keeping."""

    text: str
    facts: str


UPGRADE = Transcript(
    """\
user: Our builds broke again. Can you find out what is going on? I think it has to do with the runtime.
assistant: I'll look at the build log first. One moment.
tool: $ tail -40 build.log
tool: error: Unsupported engine. The package vite requires node >= 22, found 20.11.1
tool: error: Process completed with exit code 1.
assistant: The log is clear: vite now needs Node 22 or newer, and the build image still has Node 20. I see two \
ways: pin vite to the last version that supports Node 20, or upgrade the image. Which one would you like?
user: We wanted to upgrade anyway. Please go to Node 24, that is what production runs since last week.
assistant: Good. I'll change the image in Dockerfile and in .ci/build.yml, and run the tests.
tool: $ sed -i s/node:20/node:24/ Dockerfile .ci/build.yml && npm ci && npm test
tool: added 1204 packages in 31s
tool: 412 passing, 3 failing
tool: 1) resize handles: TypeError: panel.getSize is not a function
assistant: Three tests fail, all in the resize handles. They come from react-resizable-panels: version 2 has \
another API for reading sizes. I'll look at how the app uses it.
tool: $ grep -rn getSize src | head
tool: src/layout/Split.tsx:41:  const size = panel.getSize();
assistant: Only one place. I'll adapt Split.tsx to the new API, which passes the size to onResize.
tool: $ npm test
tool: 415 passing
assistant: Everything passes now. To sum up: the app runs on Node 24, vite needs it, Split.tsx was adapted to \
react-resizable-panels 2, and the resize handles are fixed by that. Shall I open a pull request?
user: Yes, and ask Ann to review it, she owns the layout code.
assistant: Done, pull request #214, Ann is asked for a review.
""",
    """\
App -> runs_on -> Node 24
vite -> requires -> Node 22
App -> depends_on -> react-resizable-panels 2
Agent -> changed -> Split.tsx
Agent -> fixed -> resize handles
Agent -> created -> pull request #214
Ann -> owns -> layout code
""",
)

INCIDENT = Transcript(
    """\
user: Checkout is slow since this morning, customers complain. What do we know?
assistant: I'll look at the dashboards and at the last deployments.
tool: p95 of POST /checkout: 4.8 s (yesterday 0.4 s). Rising since 08:40.
tool: deployments today: 08:35 payments 3.2.0 by bob, 09:10 search 1.9.4 by cleo
assistant: The slowdown begins at 08:40, five minutes after payments 3.2.0 went out. Search came later, so I \
leave it aside for the moment. Let me look at what payments does in these seconds.
tool: trace 7f3a: checkout 4.7 s > payments.authorize 4.5 s > postgres SELECT 4.4 s (seq scan on ledger)
assistant: Nearly all of the time is one query of payments on postgres: a sequential scan of the table ledger. \
The release notes of 3.2.0 mention a new filter by merchant. I suspect that its index is missing.
tool: $ psql -c '\\d ledger'
tool: Indexes: ledger_pkey PRIMARY KEY, ledger_created_at_idx
assistant: Confirmed, there is no index on ledger.merchant_id. The quickest remedy is to create it concurrently; \
the other is to roll payments back to 3.1.7. Creating it takes about two minutes on a table of this size.
user: Create the index. And write down that payments belongs to Bob's team, people keep asking.
tool: CREATE INDEX CONCURRENTLY ledger_merchant_id_idx: done in 104 s
tool: p95 of POST /checkout: 0.5 s
assistant: The latency is back to 0.5 s. Cause: payments 3.2.0 filters by merchant without an index. Remedy: the \
index ledger_merchant_id_idx. The incident is over; I'll add a migration so that staging gets it as well.
user: Thanks. Please also note that we agreed to test migrations on a copy of production from now on.
assistant: Noted.
""",
    """\
checkout -> depends_on -> payments
payments -> depends_on -> postgres
payments -> version -> 3.2.0
payments 3.2.0 -> caused -> slow checkout
ledger_merchant_id_idx -> fixed -> slow checkout
payments -> owner -> Bob's team
team -> decided -> test migrations on a copy of production
""",
)

ONBOARDING = Transcript(
    """\
user: Hi! I'm new here, Dana, I joined the data team on Monday. I moved from New York to London for this.
assistant: Welcome, Dana! I can help you to get set up. What will you be working on?
user: Project Heron, with Eli. He said it is mostly Python and that everything runs in Docker, is that right?
assistant: Let me check the repository of Heron. Yes: the services are in Python 3.12, they are started with \
Docker Compose, and the warehouse is ClickHouse. There is a README with the steps, though some are out of date.
user: Which steps? I'd rather not follow wrong ones, I lost half a day that way in my last job.
assistant: The README says to install Poetry, but Heron moved to uv in March. It also names the old host of the \
warehouse. I can give you the right commands, and fix the README while we are at it.
user: Please do both. One thing about me: I don't use VS Code, I work in Neovim, so please leave out editor \
extensions.
assistant: Understood, no VS Code extensions. Here are the commands: clone the repository, run uv sync, then \
docker compose up. The tests run with uv run pytest. For the warehouse you need an account, which Farah on the \
platform team creates.
user: uv sync works. docker compose up fails with a permission error on /var/run/docker.sock.
assistant: Then your user isn't in the group docker yet. Run sudo usermod -aG docker dana, log out and in again.
user: That was it, all services are up. And I prefer short answers in the future, by the way. No need to \
apologise either.
assistant: Noted. The README is corrected too.
""",
    """\
Dana -> member_of -> data team
Dana -> lives_in -> London
Dana -> works_on -> Project Heron
Eli -> works_on -> Project Heron
Project Heron -> uses -> Python 3.12
Project Heron -> uses -> Docker Compose
Project Heron -> uses -> ClickHouse
Project Heron -> uses -> uv
Dana -> prefers -> Neovim
Dana -> avoids -> VS Code
Dana -> prefers -> short answers
Farah -> member_of -> platform team
""",
)

ALL = {"an upgrade": UPGRADE, "an incident": INCIDENT, "an onboarding": ONBOARDING}
