"""Sixty questions about the knowledge of a small team's agents, and the items that answer each.

The corpus is written by hand: notes and notepads of sessions, observations, preferences and facts of a shop's team. It
changes halfway, so that some questions have one answer before and another after the change.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from scratchbus import Bus, BusPosition

Kind = Literal["keyword", "paraphrase", "multi-hop", "temporal", "negation"]

SCOPES = ("ada", "ada/shop")
SESSIONS = ("payments", "search", "infra")

NOTES: dict[str, tuple[str, str]] = {
    "n-refund": ("payments", "Refunds above 500 euros need a second approval in the back office"),
    "n-stripe": ("payments", "Stripe webhooks arrive twice when the endpoint takes longer than ten seconds"),
    "n-vat": ("payments", "VAT is rounded per line item, not per invoice; the auditors insist on it"),
    "n-sepa": ("payments", "SEPA direct debits settle after two banking days"),
    "n-iban": ("payments", "The IBAN check accepts spaces and lower case"),
    "n-cart": ("payments", "The cart keeps prices for thirty minutes, then they are looked up again"),
    "n-chargeback": ("payments", "A customer who disputes a card payment freezes the order until support decides"),
    "n-currency": ("payments", "Exchange rates come from the central bank at four in the afternoon"),
    "n-giftcard": ("payments", "Gift cards expire after three years and cannot be paid out"),
    "n-fraud": ("payments", "Orders with a billing country other than the delivery country are reviewed by hand"),
    "n-typo": ("search", "Misspelled queries are corrected with a distance of at most two letters"),
    "n-synonym": ("search", "Sofa and couch are synonyms in the index; so are cell phone and mobile"),
    "n-reindex": ("search", "A full rebuild of the product index takes four hours and doubles the disk usage"),
    "n-boost": ("search", "Articles in stock rank before those that must be ordered"),
    "n-zero": ("search", "Three percent of searches find nothing, mostly brand names we do not sell"),
    "n-facet": ("search", "Filters by colour are slow because the values are free text"),
    "n-lang": ("search", "German compounds are split before they are indexed"),
    "n-suggest": ("search", "Suggestions while typing come from last month's most frequent queries"),
    "n-image": ("search", "Pictures larger than two megabytes are skipped by the crawler"),
    "n-abtest": ("search", "The experiment with the bigger result tiles raised the click rate by four percent"),
    "n-backup": ("infra", "Database copies are made every night at two and kept for thirty-five days"),
    "n-restore": ("infra", "The last restore drill took fifty minutes, twenty of them for the search index"),
    "n-cert": ("infra", "Certificates are renewed by a cron job on the gateway, thirty days before they end"),
    "n-dns": ("infra", "The DNS records have a time to live of five minutes so that we can fail over"),
    "n-queue": ("infra", "When the mail queue grows beyond a thousand messages, the provider throttles us"),
    "n-deploy": ("infra", "Deployments are frozen from Friday noon until Monday morning"),
    "n-log": ("infra", "Log files are rotated daily and shipped to cold storage after two weeks"),
    "n-memory": ("infra", "The recommendation service leaks about a hundred megabytes a day and is restarted weekly"),
    "n-latency": ("infra", "Most of the checkout's response time is spent waiting for the tax service"),
    "n-gpu": ("infra", "The image classifier runs on rented graphics cards, billed by the hour"),
    "n-runner": ("infra", "CI jobs that need Docker run on the large machines only"),
    "n-flaky": ("infra", "The test of the newsletter signup fails once in fifty runs for lack of a wait"),
    "n-secret": ("infra", "Credentials live in the vault and are never written to environment files"),
    "n-oncall": ("infra", "Whoever is on call hands over on Wednesday at ten with a written summary"),
    "n-cdn": ("infra", "The content delivery network ignores query strings when it caches pictures"),
    "n-nocache": ("payments", "The invoice service works without Redis; it reads straight from the database"),
    "n-nocookie": ("search", "Search sets no cookies, so it needs no consent banner"),
    "n-noretry": ("payments", "Failed card payments are never retried automatically"),
    "n-noweekend": ("infra", "There is no support by the hosting company at weekends"),
    "n-nopdf": ("search", "Manuals as PDF are not indexed, only their titles"),
    "n-noguest": ("payments", "Guests cannot pay by invoice; only customers with an account can"),
    "n-noroot": ("infra", "Containers do not run as root on any host"),
    "n-nopii": ("infra", "Personal data must not appear in the traces"),
}  # fmt: skip
"""By name: the session, and the text."""

CHANGED: dict[str, str] = {
    "n-backup": "Database copies are made every hour and kept for ninety days",
    "n-deploy": "Deployments are allowed on all days since the canary releases work",
    "n-cart": "The cart keeps prices for a whole day, then they are looked up again",
    "n-reindex": "A full rebuild of the product index takes forty minutes on the new cluster",
    "n-oncall": "Whoever is on call hands over on Monday at nine by video",
}
"""New texts of notes, after the change."""

LATER: dict[str, tuple[str, str]] = {
    "n-incident-old": ("infra", "Incident in March: the gateway ran out of file handles"),
    "n-incident-new": ("infra", "Incident in October: the gateway was down because a certificate had not been renewed"),
    "n-audit-new": ("payments", "The newest audit found that refunds were approved by the person who asked for them"),
    "n-crawler-new": ("search", "The latest crawl skipped half of the catalogue because of a redirect loop"),
    "n-load-new": ("infra", "In the most recent load test the checkout held nine hundred orders a minute"),
}
"""Notes taken after the change."""

NOTEPADS = {
    "p-payments": ("payments", "# Plan\n- [x] list open disputes\n- [ ] ask the bank about instant transfers\n"),
    "p-search": ("search", "# Plan\n- [ ] measure relevance before the new analyzer goes live\n"),
    "p-infra": (
        "infra",
        "# Plan\n- [ ] move the vault to the second data centre\n- [ ] write the runbook for failover\n",
    ),
}

OBSERVATIONS = {
    "o-disk": ("risk_alert", "The disk of the reporting host is ninety-four percent full"),
    "o-login": ("risk_alert", "Two hundred failed logins from one network within five minutes"),
    "o-slow": ("observation", "The average page load on phones rose from two to five seconds"),
    "o-stock": ("observation", "The warehouse reports negative stock for eleven articles"),
    "o-mail": ("pending_confirmation", "Order confirmations to one provider are probably marked as spam"),
    "o-price": ("pattern_detected", "Competitors lower their prices on Thursday evenings"),
    "o-return": ("contextual_insight", "Shoes are sent back three times as often as shirts"),
    "o-parser": ("dependency", "The feed importer cannot be updated before the parser supports namespaces"),
}

PREFERENCES = {
    "v-quotes": ("ada/shop", "quotes in JavaScript", "always use double quotes"),
    "v-tests": ("ada/shop", "test files", "never edit them without asking me first"),
    "v-commit": ("ada/shop", "commit messages", "imperative, at most 72 characters, a body that says why"),
    "v-tone": ("ada", "tone of answers", "short and direct, without praise"),
    "v-lang": ("ada", "language", "answer in English even when I write German"),
    "v-time": ("ada", "meetings", "not before ten in the morning"),
    "v-units": ("ada", "units", "metric, and dates as year-month-day"),
    "v-branch": ("ada/shop", "branches", "one topic each, rebased before review"),
}

FACTS = {
    "f-ada-shop": ("Ada", "works_on", "shop"),
    "f-ben-search": ("Ben", "works_on", "search service"),
    "f-cleo-gateway": ("gateway", "owner", "Cleo"),
    "f-shop-checkout": ("shop", "has_part", "checkout"),
    "f-checkout-tax": ("checkout", "depends_on", "tax service"),
    "f-tax-soap": ("tax service", "uses", "SOAP"),
    "f-tax-owner": ("tax service", "owner", "Dora"),
    "f-search-solr": ("search service", "uses", "Solr"),
    "f-solr-host": ("Solr", "runs_on", "host argon"),
    "f-argon-place": ("host argon", "located_in", "Frankfurt"),
    "f-gateway-nginx": ("gateway", "uses", "nginx"),
    "f-shop-docker": ("shop", "uses", "Docker"),
    "f-classifier-vendor": ("image classifier", "depends_on", "Nimbus GPU cloud"),
    "f-nimbus-place": ("Nimbus GPU cloud", "located_in", "Helsinki"),
    "f-classifier-owner": ("image classifier", "owner", "Emil"),
}
"""By name: subject, relation, object. All are of the scope `ada/shop`."""

RUNTIMES = {"f-node-old": ("shop", "runs_on", "Node 20"), "f-node-new": ("shop", "runs_on", "Node 24")}
"""The second ends the first at the change."""


class Question(NamedTuple):
    """A question, the items that answer it, and whether it is about the time before the change."""

    kind: Kind
    text: str
    relevant: frozenset[str]
    is_before: bool = False


def _of(kind: Kind, *asked: tuple[str, str]) -> list[Question]:
    return [Question(kind, text, frozenset(relevant.split())) for text, relevant in asked]


QUESTIONS: list[Question] = [
    *_of(
        "keyword",
        ("Stripe webhooks", "n-stripe"),
        ("VAT rounding", "n-vat"),
        ("SEPA direct debit", "n-sepa"),
        ("IBAN check", "n-iban"),
        ("gift cards", "n-giftcard"),
        ("synonyms of sofa", "n-synonym"),
        ("German compounds", "n-lang"),
        ("mail queue throttled", "n-queue"),
        ("double quotes in JavaScript", "v-quotes"),
        ("failed logins", "o-login"),
        ("negative stock", "o-stock"),
        ("vault", "n-secret p-infra"),
        ("DNS time to live", "n-dns"),
        ("commit messages", "v-commit"),
        ("feed importer parser", "o-parser"),
    ),
    *_of(
        "paraphrase",
        ("How long do we hold on to price quotes in the basket?", "n-cart"),
        ("What happens when a buyer contests a charge?", "n-chargeback"),
        ("Who must sign off on giving money back?", "n-refund"),
        ("Where are passwords stored?", "n-secret"),
        ("Does the mobile site feel sluggish?", "o-slow"),
        ("Which apparel do buyers return most?", "o-return"),
        ("When do rival shops get cheaper?", "o-price"),
        ("How should I phrase replies to the user?", "v-tone"),
        ("May I change the specs on my own?", "v-tests"),
        ("Which service grows in memory until it is restarted?", "n-memory"),
        ("How are spelling mistakes handled?", "n-typo"),
        ("Why is narrowing results by color so slow?", "n-facet"),
        ("What makes paying take so long?", "n-latency"),
        ("Are our e-mails landing in junk folders?", "o-mail"),
    ),
    *_of(
        "multi-hop",
        ("What does the project that Ada works on run on?", "f-node-new"),
        ("Which container tool does Ada need?", "f-shop-docker"),
        ("Who do I ask about the service the checkout waits for?", "f-tax-owner"),
        ("Which protocol does the checkout speak in the end?", "f-tax-soap"),
        ("In which city is Ben's search engine?", "f-argon-place"),
        ("On which machine does what Ben uses run?", "f-solr-host"),
        ("Which web server does Cleo look after?", "f-gateway-nginx"),
        ("In which city are the graphics cards that Emil depends on?", "f-nimbus-place"),
        ("Which incident concerned what Cleo maintains?", "n-incident-new n-incident-old"),
        ("Whose supplier is in Helsinki?", "f-classifier-owner"),
        ("What of Ada's project depends on Dora?", "f-checkout-tax"),
    ),
    *_of(
        "temporal",
        ("Which Node version does the shop run on?", "f-node-new"),
        ("What was the newest incident of the gateway?", "n-incident-new"),
        ("What did the latest crawl skip?", "n-crawler-new"),
        ("How often are database copies made?", "n-backup"),
        ("On which days are deployments allowed?", "n-deploy"),
    ),
    *(
        question._replace(is_before=True)
        for question in _of(
            "temporal",
            ("Which Node version did the shop run on?", "f-node-old"),
            ("When were deployments frozen?", "n-deploy"),
            ("How long did a full rebuild of the product index take?", "n-reindex"),
            ("When did the one on call hand over?", "n-oncall"),
            ("How many days were database copies kept?", "n-backup"),
        )
    ),
    *_of(
        "negation",
        ("Which service does not need Redis?", "n-nocache"),
        ("What is never retried?", "n-noretry"),
        ("What is not indexed?", "n-nopdf"),
        ("Who cannot pay by invoice?", "n-noguest"),
        ("Where is there no consent banner?", "n-nocookie"),
        ("When is nobody there at the hosting company?", "n-noweekend"),
        ("What must not be in the traces?", "n-nopii"),
        ("When are there no meetings?", "v-time"),
        ("What may containers not do?", "n-noroot"),
        ("What do we not sell?", "n-zero"),
    ),
]


class Corpus:
    """The corpus on a bus. `texts` are all items by name, with their current text, oldest first."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._names: dict[tuple[str, str], str] = {}
        self.texts: dict[str, str] = {}
        self._write()
        self.before: BusPosition = bus.position()
        self._change()

    def _write(self) -> None:
        for name, (session, text) in NOTES.items():
            self._note(name, session, text)
        for name, (session, text) in NOTEPADS.items():
            self._bus.notepad(session).write(text)
            self._know(name, f"session:{session}", "notepad", text)
        for name, (type, text) in OBSERVATIONS.items():
            self._know(name, "main", self._bus.page().add(type, text).id, text)
        for name, (scope, key, text) in PREFERENCES.items():
            preference = self._bus.preferences(scope).remember(key, text)
            self._know(name, f"knowledge:{scope}", preference.id, f"{key}: {text}")
        for name, triplet in FACTS.items():
            self._fact(name, triplet)
        self._fact("f-node-old", RUNTIMES["f-node-old"])

    def _change(self) -> None:
        ids = {name: id for (_, id), name in self._names.items()}
        for name, text in CHANGED.items():
            self._bus.notes(NOTES[name][0]).update(ids[name], text)
            del self.texts[name]
            self.texts[name] = text
        self._fact("f-node-new", RUNTIMES["f-node-new"])
        for name, (session, text) in LATER.items():
            self._note(name, session, text)

    def _note(self, name: str, session: str, text: str) -> None:
        self._know(name, f"session:{session}", self._bus.notes(session).add(text).note.id, text)

    def _fact(self, name: str, triplet: tuple[str, str, str]) -> None:
        fact = self._bus.facts("ada/shop").assert_fact(*triplet)
        self._know(name, "knowledge:ada/shop", fact.id, " ".join(triplet).replace("_", " "))

    def _know(self, name: str, page: str, id: str, text: str) -> None:
        self._names[page, id], self.texts[name] = name, text

    def recall(self, question: Question) -> list[str]:
        """Return the names of the items that `recall` returns."""
        at = self.before if question.is_before else None
        found = self._bus.recall(question.text, scopes=SCOPES, sessions=SESSIONS, page="main", at=at)
        return [self._names[each.page, each.id] for each in found]
