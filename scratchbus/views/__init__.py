"""Live views: pages in memory, kept current by the log."""
