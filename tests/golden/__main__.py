"""`python -m tests.golden`: write what the schema version of today writes, once."""

from tests.golden import write

write()
