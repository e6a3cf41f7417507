"""The GPUs of the box: what the driver says of them, who holds them, what went wrong with them."""
