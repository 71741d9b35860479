"""New claims and the slots they get: create, batch, bind, search, and why a claim waits."""
