"""The farm: the devices of a project as one pool behind TVM's tracker, watched over."""
