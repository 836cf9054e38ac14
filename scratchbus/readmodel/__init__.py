"""What the log says now: checkpoint and commit, fresh queries, snapshots, rebuild, verification."""
