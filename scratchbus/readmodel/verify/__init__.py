"""Verification: compares the engine's data, key by key, with the fold of the log."""

from scratchbus.readmodel.verify.findings import Finding, Verified
from scratchbus.readmodel.verify.verifier import verify

__all__ = ["Finding", "Verified", "verify"]
