"""The findings of a verification: their kinds in the docs, and the advice for each."""

from __future__ import annotations

import re

from scratchbus.readmodel.verify.findings import Finding
from tests.docs.markdown import ROOT, codes, rows

TABLE = list(rows((ROOT / "docs" / "audit.md").read_text("utf-8"), "## Verifying the bus"))


def test_the_docs_explain_every_kind_of_finding():
    explained = [kind for row in TABLE for kind in codes(row[0])]
    documented = re.search(r"one of: (.*?)\.", " ".join(str(Finding.__doc__).split()))
    assert documented is not None
    assert sorted(explained) == sorted(documented[1].split(", "))


def test_findings_give_the_advice_of_the_docs():
    for kinds, _, advice in TABLE:
        for kind in codes(kinds):
            given = Finding(kind, "", "").advice
            assert codes(given) == codes(advice)
            assert ("backup" in given) == ("backup" in advice)
