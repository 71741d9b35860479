"""Provider of declared members, for which Berth only records who holds which slot."""
