"""The embedded engine: one private server per directory."""
