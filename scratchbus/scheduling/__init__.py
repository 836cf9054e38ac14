"""Time as events: expiry, auto-archive, lapses, reminders."""
