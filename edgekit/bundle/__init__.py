"""What a build leaves: a folder with a manifest, a library or C, and proof."""
