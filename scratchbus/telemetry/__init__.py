"""What this process keeps of itself: counters, logs, and the modules it imports on first use."""
