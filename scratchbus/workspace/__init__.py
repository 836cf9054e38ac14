"""Files of a project that people and agents share: `TODO.md`, `NOTES.md` and rules; it imports public names only."""
