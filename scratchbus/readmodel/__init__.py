"""The current state: checkpoint and commit, fresh queries, snapshots, rebuild, verification."""
