"""`python -m tests.golden`: write the golden files of the current schema version, once."""

from tests.golden import write

write()
