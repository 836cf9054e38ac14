"""Work: open observations on pages, each claimed by one of many workers at a time."""

from scratchbus.work.job_state import WorkTerms, claim_next
from scratchbus.work.work import Job, Work
from scratchbus.work.work_async import AsyncJob, AsyncWork

__all__ = ["AsyncJob", "AsyncWork", "Job", "Work", "WorkTerms", "claim_next"]
