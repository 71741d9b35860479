"""Plans: outlines, changes as people read them, and queries."""
