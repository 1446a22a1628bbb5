"""The door for other compilers: Programs as bytes, as JSON and as flat arrays. `ir/WIRE.md` tells implementers of other languages."""
