"""The Redis rim: keys, codec, scripts, connections, reading."""
