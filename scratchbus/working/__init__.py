"""Work: what is open on the pages, claimed by one of many workers at a time."""

from scratchbus.working.blocking import Job, Work
from scratchbus.working.holding import Terms, claim_next
from scratchbus.working.nonblocking import AsyncJob, AsyncWork

__all__ = ["AsyncJob", "AsyncWork", "Job", "Terms", "Work", "claim_next"]
