"""Provider of declared members, for which Berth only records the holders of slots."""
