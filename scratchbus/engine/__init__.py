"""Redis and Valkey servers: URLs, connections, drivers, and the typed scripts that run there."""
