"""Verification: what the engine holds is compared, key by key, with what follows from the log."""

from scratchbus.verification.findings import Finding, Verified
from scratchbus.verification.verifying import verify

__all__ = ["Finding", "Verified", "verify"]
