"""Making an equal bus of an export: the whole file is checked before anything is written, then all of it appears."""

from scratchbus.archive.importing.importer import import_events as import_events
