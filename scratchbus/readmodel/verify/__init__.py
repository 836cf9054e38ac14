"""Verification: what the engine holds is compared, key by key, with what follows from the log."""

from scratchbus.readmodel.verify.findings import Finding, Verified
from scratchbus.readmodel.verify.verifier import verify

__all__ = ["Finding", "Verified", "verify"]
