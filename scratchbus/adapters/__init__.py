"""Interfaces through which agents that are in use already get their memory; each imports one foreign package."""
