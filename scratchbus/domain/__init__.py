"""The pure domain: observations, events, lifecycles, the registry. It sees no Redis, clock, file or logger."""
