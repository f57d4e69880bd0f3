"""TVM's RPC through SSH: a tracker on the host, agents on devices, sessions for clients."""
