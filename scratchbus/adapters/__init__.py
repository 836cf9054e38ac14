"""Adapters that connect existing agents to the memories of a bus; each imports one foreign package."""
