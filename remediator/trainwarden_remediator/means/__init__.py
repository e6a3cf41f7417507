"""One file per means by which a target is acted upon: what the configuration says of each."""
