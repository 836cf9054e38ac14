"""The import of an export into an identical bus: it is checked completely before anything is written."""

from scratchbus.archive.importing.importer import import_events as import_events
