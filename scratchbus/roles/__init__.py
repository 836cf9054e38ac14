"""What the reference daemons do. They use the bus by its public names only, as anybody's daemon would."""
