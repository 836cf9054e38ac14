"""Work: what is open on the pages, claimed by one of many workers at a time."""

from scratchbus.working.blocking import Host, Job, Work
from scratchbus.working.holding import Terms, claim_next
from scratchbus.working.nonblocking import AsyncHost, AsyncJob, AsyncWork

__all__ = ["AsyncHost", "AsyncJob", "AsyncWork", "Host", "Job", "Terms", "Work", "claim_next"]
