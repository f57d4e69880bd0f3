"""TVM's RPC through SSH: a tracker here, agents on devices, sessions for whoever measures."""
