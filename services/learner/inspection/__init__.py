"""One training batch as arrays and a picture: `seedbed inspect unroll`."""
